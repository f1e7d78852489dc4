package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sandboxed, set in the environment, makes this test binary the sandbox instead of a test.
const sandboxed = "STILLWIRE_TEST_SANDBOX"

// nobody is the user and group of the sandbox, as container images without root have it.
const nobody = 65532

func TestMain(m *testing.M) {
	if os.Getenv(sandboxed) != "" {
		fmt.Fprintln(os.Stderr, "sandbox:", enterAndExec(os.Args[1:]))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// inSandbox is a command that runs as user 65532 without any capability, with no way to get
// one, and with every file system read-only. Root makes such a sandbox directly, any other
// user inside a user namespace in which their own id is called 65532.
func inSandbox(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{program}, args...)...)
	cmd.Env = []string{sandboxed + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	}
	return cmd
}

// enterAndExec locks itself in and becomes the program. It only returns with an error.
func enterAndExec(argv []string) error {
	runtime.LockOSThread() // what follows counts for one thread, which then becomes the process
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"make all file systems read-only", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}},
		{"empty the bounding set", emptyBoundingSet},
		{"become user 65532", becomeNobody},
		{"give up capabilities", giveUpCapabilities},
		{"give up new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return fmt.Errorf("run %s: %w", argv[0], unix.Exec(argv[0], argv, nil))
}

// emptyBoundingSet drops one capability after the other up to the last that the kernel knows.
func emptyBoundingSet() error {
	for capability := uintptr(0); ; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) && capability > unix.CAP_SYS_ADMIN {
				return nil
			}
			return err
		}
	}
}

func becomeNobody() error {
	if os.Getuid() == nobody {
		return nil
	}
	return errors.Join(
		unix.Setgroups(nil),
		unix.Setresgid(nobody, nobody, nobody),
		unix.Setresuid(nobody, nobody, nobody),
	)
}

func giveUpCapabilities() error {
	var none [2]unix.CapUserData
	return errors.Join(
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
		unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]),
	)
}

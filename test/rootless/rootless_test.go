// Package rootless runs the shipped program the way a restricted container does: as user
// 65532, without any capability, with every file system read-only.
package rootless

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device"
)

func TestGatewayNeedsNoPrivilege(t *testing.T) {
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	far := openFar(t, key.Public())
	payload := randomBytes(1 << 20)
	serve(t, far.listen(t, 80), payload)
	local := httptest.NewServer(answer(payload))
	t.Cleanup(local.Close)

	dir := sharedDir(t)
	secretFile(t, dir, "wg0.key", key.Reveal()+"\n")
	conf := secretFile(t, dir, "wg0.conf", fmt.Sprintf(`[Interface]
PrivateKeyFile = wg0.key
Address = %s/24

[Peer]
PublicKey = %s
AllowedIPs = %s/32
Endpoint = 127.0.0.1:%d
PersistentKeepalive = 25
`, nearAddr, far.key, farAddr, far.port))
	gateway := start(t, build(t), "--socks5", "127.0.0.1:0", "--publish", "tcp/8080="+local.Listener.Addr().String(), conf)

	t.Run("a program reaches the far end through SOCKS5", func(t *testing.T) {
		proxy := &url.URL{Scheme: "socks5h", Host: gateway.service(t, "socks5")}
		transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
		defer transport.CloseIdleConnections()
		fetch(t, transport, fmt.Sprintf("http://%s/", farAddr), payload)
	})
	t.Run("the far end reaches a program through a published port", func(t *testing.T) {
		transport := &http.Transport{DialContext: far.DialContext}
		defer transport.CloseIdleConnections()
		fetch(t, transport, fmt.Sprintf("http://%s:8080/", nearAddr), payload)
	})
	t.Run("it is nobody and can become nobody else", func(t *testing.T) {
		want := map[string]string{
			"Uid": ids(os.Getuid()), "Gid": ids(os.Getgid()), "NoNewPrivs": "1",
			"CapInh": noCapability, "CapPrm": noCapability, "CapEff": noCapability, "CapBnd": noCapability, "CapAmb": noCapability,
		}
		if os.Getuid() == 0 {
			want["Uid"], want["Gid"], want["Groups"] = ids(nobody), ids(nobody), ""
		}
		if diff := cmp.Diff(want, fields(gateway.proc(t, "status"), want)); diff != "" {
			t.Errorf("/proc/PID/status (-want +got):\n%s", diff)
		}
	})
	t.Run("it can write nowhere", func(t *testing.T) {
		for line := range strings.Lines(gateway.proc(t, "mountinfo")) {
			if options := strings.Split(strings.Fields(line)[5], ","); options[0] != "ro" {
				t.Errorf("a file system can be written to: %s", line)
			}
		}
	})
	t.Run("SIGHUP takes a changed file", func(t *testing.T) {
		newcomer, err := device.NewPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, conf, fmt.Sprintf("[Peer]\nPublicKey = %s\nAllowedIPs = 10.78.0.0/16\n", newcomer.Public()))
		if err := gateway.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		gateway.waitFor(t, "/status", newcomer.Public().String())
		gateway.waitForLog(t, `"message":"changed"`)
	})
	t.Run("it ends cleanly and has started no process", func(t *testing.T) {
		if found := children(t, gateway.cmd.Process.Pid); len(found) > 0 {
			t.Errorf("it has children: %v", found)
		}
		// Page faults and processor time of children that were waited for: cminflt, cmajflt, cutime, cstime.
		stat := statFields(gateway.proc(t, "stat"))
		if diff := cmp.Diff([]string{"0", "0", "0", "0"}, []string{stat[8], stat[10], stat[13], stat[14]}); diff != "" {
			t.Errorf("it had children (-want +got):\n%s", diff)
		}
		gateway.stop(t)
	})
}

const noCapability = "0000000000000000"

// ids is an id as /proc/PID/status shows it: real, effective, saved, file system.
func ids(id int) string { return fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", id) }

// fields picks the wanted fields from the text of /proc/PID/status.
func fields(status string, want map[string]string) map[string]string {
	got := make(map[string]string)
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if _, wanted := want[name]; wanted {
			got[name] = strings.TrimSpace(value)
		}
	}
	return got
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("\n" + text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(b) // never an error
	return b
}

// answer gives the payload to everyone who asks.
func answer(payload []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "payload.bin", time.Time{}, bytes.NewReader(payload))
	})
}

func serve(t *testing.T, ln net.Listener, payload []byte) {
	t.Helper()
	server := &http.Server{Handler: answer(payload)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln) // ends with Close
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
}

// fetch wants the payload and nothing else.
func fetch(t *testing.T, transport http.RoundTripper, address string, want []byte) {
	t.Helper()
	client := &http.Client{Transport: transport, Timeout: patience}
	resp, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
		t.Errorf("GET %s gives %s, %d bytes of %d, error %v", address, resp.Status, len(got), len(want), err)
	}
}

package main

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stillwire/stillwire/netstack/gateway"
)

// TestMain lets the test binary be the program: a script that runs stillwire runs main.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"stillwire": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "ready": ready, "unset": unset},
	})
}

// exits runs a program as exec does and wants an exit code: exits CODE PROGRAM ARGUMENT…
func exits(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENT...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, exit := 0, (*exec.ExitError)(nil)
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v ends with code %d, want %d", args[1:], got, want)
	}
}

// unset takes a variable away: unset NAME.
func unset(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: unset NAME")
	}
	ts.Setenv(args[0], "")
}

// ready waits until a gateway answers and is ready: ready ADMIN.
func ready(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: ready ADMIN")
	}
	client, err := gateway.NewClient("unix:" + ts.MkAbs(strings.TrimPrefix(args[0], "unix:")))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := client.Status(ctx)
		if err == nil && status.Ready {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("the gateway at %s is not ready: %v, %v", args[0], status.NotReady, err)
		}
	}
}

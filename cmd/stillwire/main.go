// Command stillwire is a userspace WireGuard for people and programs without privileges:
// it runs tunnels from wg-quick files and serves them as proxies and forwards. Run
// "stillwire help" for its commands. It starts no process, and no secret is ever given to
// it as a flag or as the value of an environment variable.
package main

import (
	"io"
	"os"

	"github.com/rs/zerolog"
)

func main() {
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(os.Args[1:]))
}

// program is what a command may touch of the process.
type program struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	names  map[string]string // of flags that the environment has given: "--drain" is "$STILLWIRE_DRAIN"
}

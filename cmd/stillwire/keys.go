package main

import (
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/stillwire/stillwire/device"
)

// maxKeyText is more than any key with the blanks and line ends around it.
const maxKeyText = 4096

type genkeyCommand struct{}

func (genkeyCommand) Help() string {
	return "The key is printed to stdout. Keep it from others: (umask 077; stillwire genkey > wg0.key)"
}

func (genkeyCommand) Run(p *program) error {
	key, err := device.NewPrivateKey()
	if err != nil {
		return err
	}
	p.warnIfReadable()
	return p.println(key.Reveal())
}

type genpskCommand struct{}

func (genpskCommand) Help() string {
	return "The key is printed to stdout. Both peers get the same one, and nobody else."
}

func (genpskCommand) Run(p *program) error {
	key, err := device.NewPresharedKey()
	if err != nil {
		return err
	}
	p.warnIfReadable()
	return p.println(key.Reveal())
}

type pubkeyCommand struct{}

func (pubkeyCommand) Help() string {
	return "For example: stillwire pubkey < wg0.key"
}

func (pubkeyCommand) Run(p *program) error {
	text, err := io.ReadAll(io.LimitReader(p.stdin, maxKeyText+1))
	if err != nil {
		return fmt.Errorf("read a private key from stdin: %w", err)
	}
	key, err := device.ParsePrivateKey(strings.TrimSpace(string(text)))
	if err != nil {
		return &wrong{fmt.Errorf("stdin: %w", err)}
	}
	return p.println(key.Public().String())
}

func (p *program) println(line string) error {
	if _, err := fmt.Fprintln(p.stdout, line); err != nil {
		return fmt.Errorf("write to stdout: %w", err)
	}
	return nil
}

// warnIfReadable warns before a secret goes to a file that others may read.
func (p *program) warnIfReadable() {
	file, ok := p.stdout.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0 {
		fmt.Fprintln(p.stderr, "stillwire: other users can read the file that this key goes to: remove it, set umask 077 and make a new key")
	}
}

package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// flags visits every flag of every command.
func flags(t *testing.T, visit func(command string, flag *kong.Flag)) {
	t.Helper()
	parser, err := (&program{}).parser()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(node *kong.Node)
	walk = func(node *kong.Node) {
		for _, flag := range node.Flags {
			visit(node.FullPath(), flag)
		}
		for _, child := range node.Children {
			walk(child)
		}
	}
	walk(parser.Model.Node)
}

func TestEveryFlagHasAnEnvironmentTwin(t *testing.T) {
	flags(t, func(command string, flag *kong.Flag) {
		if flag.Name == "help" || flag.Name == "version" {
			return
		}
		want := "STILLWIRE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if len(flag.Envs) != 1 || flag.Envs[0] != want {
			t.Errorf("%s --%s has the environment twins %v, want %s", command, flag.Name, flag.Envs, want)
		}
	})
}

func TestNoFlagTakesASecret(t *testing.T) {
	flags(t, func(command string, flag *kong.Flag) {
		for _, word := range []string{"key", "psk", "secret", "password", "token"} {
			if strings.Contains(flag.Name, word) && !strings.HasSuffix(flag.Name, "-file") {
				t.Errorf("%s --%s: others can read arguments and environment, take the name of a file", command, flag.Name)
			}
		}
	})
}

func TestHelpFitsATerminal(t *testing.T) {
	parser, err := (&program{}).parser()
	if err != nil {
		t.Fatal(err)
	}
	commands := [][]string{nil}
	for _, node := range parser.Model.Children {
		commands = append(commands, []string{node.Name})
	}
	for _, command := range commands {
		var out bytes.Buffer
		p := &program{stdout: &out, stderr: &out}
		if code := p.run(append(command, "--help")); code != exitDone {
			t.Errorf("%v --help ends with code %d", command, code)
		}
		for line := range strings.Lines(out.String()) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("help of %v has a line of more than 80 columns: %s", command, line)
			}
		}
	}
}

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
)

// ownVariable is what the variables of stillwire begin with.
const ownVariable = "STILLWIRE_"

// services are the variables that Kubernetes makes of a Service whose name begins with
// stillwire, and tests of their programs.
var services = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_|$)|_PORT(_\d+_(TCP|UDP)(_|$)|$)|^STILLWIRE_(TEST|INTEROP)_`)

// fromEnvironment says which flags of the command the environment has given, and not the
// command line.
func fromEnvironment(ctx *kong.Context) map[string]string {
	given := make(map[string]bool)
	for _, element := range ctx.Path {
		if element.Flag != nil && !element.Resolved {
			given[element.Flag.Name] = true
		}
	}
	names := make(map[string]string)
	for _, flag := range ctx.Flags() {
		if _, set := os.LookupEnv(twin(flag.Name)); set && !given[flag.Name] {
			names["--"+flag.Name] = "$" + twin(flag.Name)
		}
	}
	return names
}

// strangers are the variables that look like a flag's and are none's, each with what to do.
func strangers(k *kong.Kong, environment []string) map[string]string {
	known := make(map[string]bool)
	_ = kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			known[twin(flag.Name)] = true
		}
		return next(nil)
	})
	out := make(map[string]string)
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" || !strings.HasPrefix(name, ownVariable) || known[name] || services.MatchString(name) {
			continue
		}
		out[name] = "no flag has this variable"
		if near := nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
			out[name] += ": did you mean " + near + "?"
		}
	}
	return out
}

// nearest is the word of known that is most like s, if one is.
func nearest(s string, known []string) string {
	best, bound := "", len(s)/4
	for _, word := range known {
		if d := levenshtein.ComputeDistance(s, word); d <= bound {
			best, bound = word, d-1
		}
	}
	return best
}

// logs is a command that has a log.
type logs interface {
	logger(w io.Writer) zerolog.Logger
}

// logsOf returns the selected command if it has a log, and else nil.
func logsOf(ctx *kong.Context) logs {
	if ctx.Selected() == nil {
		return nil
	}
	command, _ := ctx.Selected().Target.Addr().Interface().(logs)
	return command
}

// warnOfStrangers says it in the log, where the command has one.
func (p *program) warnOfStrangers(k *kong.Kong, ctx *kong.Context) {
	said := strangers(k, os.Environ())
	command := logsOf(ctx)
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if command != nil {
			log := command.logger(p.stderr)
			log.Warn().Str("variable", name).Str("hint", said[name]).Msg("variable of the environment is not known")
			continue
		}
		fmt.Fprintf(p.stderr, "stillwire: warning: %s: %s\n", name, said[name])
	}
}

// negative is a value that looks like a short flag.
var negative = regexp.MustCompile(`^-\d`)

// joinNegatives makes "--drain -5s" one argument, for the flag to say what is wrong with it.
func joinNegatives(args []string) (out []string) {
	for i, arg := range args {
		if i > 0 && negative.MatchString(arg) && strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "=") {
			out[len(out)-1] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

// flagName finds the flag that an error of the parser is about.
var flagName = regexp.MustCompile(`^--[a-z0-9-]+`)

// envar is how kong says that it was a variable, at the end of some errors.
var envar = regexp.MustCompile(` \(from envar [^)]*\)$`)

// inItsName names the variable where it, and not the flag, was given.
func inItsName(message string, args []string) string {
	flag := flagName.FindString(message)
	name := twin(strings.TrimPrefix(flag, "--"))
	if _, set := os.LookupEnv(name); flag == "" || !set {
		return message
	}
	for _, arg := range args {
		if arg == flag || strings.HasPrefix(arg, flag+"=") {
			return message
		}
	}
	return "$" + name + strings.TrimPrefix(envar.ReplaceAllString(message, ""), flag)
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stillwire/stillwire/netstack"
)

// commands is the command line. Every flag but --help and --version has an environment twin, see twin.
type commands struct {
	Help        helpFlag    `short:"h" help:"Show the help of a command."`
	ShowVersion versionFlag `name:"version" hidden:"" help:"As the command version."`

	Gateway   gatewayCommand   `cmd:"" help:"Run tunnels from wg-quick files, without privileges."`
	Agent     agentCommand     `cmd:"" help:"Make this machine a node of a mesh, and keep it one."`
	Uninstall uninstallCommand `cmd:"" help:"Take away what an agent made on this machine."`
	Check     checkCommand     `cmd:"" help:"Say what of a configuration is read, ignored, refused."`
	Status    statusCommand    `cmd:"" help:"Say what a running agent knows."`
	Peer      peerCommand      `cmd:"" help:"Show or create a peer without an agent: a laptop, a phone."`
	Plan      planCommand      `cmd:"" help:"Say what a gateway or an agent would change."`
	Migrate   migrateCommand   `cmd:"" help:"Come from another mesh."`
	Demo      demoCommand      `cmd:"" help:"Change a device 10,000 times under traffic, and count."`
	Genkey    genkeyCommand    `cmd:"" help:"Make a private key."`
	Pubkey    pubkeyCommand    `cmd:"" help:"Make the public key of the private key on stdin."`
	Genpsk    genpskCommand    `cmd:"" help:"Make a preshared key."`
	Version   versionCommand   `cmd:"" help:"Show the version, and those of what is inside."`
	Manual    helpCommand      `cmd:"" name:"help" help:"Show this help, or that of a command."`
}

// footer is the end of the help of the program as a whole.
const footer = `
Each flag has an environment twin: --log-level is STILLWIRE_LOG_LEVEL. A flag
wins over its twin. Several values in one variable are separated by commas.

Exit codes:
  0  done
  1  the operation did not succeed
  2  wrong usage, or a wrong file, key or address
  3  plan: a reload would change something
`

// The exit codes of the program, as footer explains them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitWrong   = 2
	exitChanges = 3
)

// errHelpShown ends a run that was only asked for help.
var errHelpShown = errors.New("help was shown")

// run parses the arguments, runs the command and returns the exit code. What went wrong is
// said on stderr, one line each.
func (p *program) run(args []string) int {
	parser, err := p.parser()
	if err != nil {
		return p.report(err)
	}
	if len(args) == 0 {
		parser.Stdout = p.stderr
		if p.report(showHelp(parser, nil)) != exitDone {
			return exitFailed
		}
		return exitWrong
	}
	args = joinNegatives(args)
	ctx, err := parser.Parse(args)
	if err != nil {
		return p.report(wrongUsage(parser, err, args))
	}
	p.names = fromEnvironment(ctx)
	p.warnOfStrangers(parser, ctx)
	if command := logsOf(ctx); command != nil {
		netstack.LogGVisor(command.logger(p.stderr))
	}
	return p.report(ctx.Run(p))
}

func (p *program) parser() (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("stillwire"),
		kong.Description("WireGuard in user space: tunnels without root, changed without losing a packet."),
		kong.NoDefaultHelp(),
		kong.Writers(p.stdout, p.stderr),
		kong.PostBuild(twins),
		kong.Resolvers(kong.ResolverFunc(listTwin)),
		kong.Bind(p),
	)
}

// twins gives each flag its environment variable.
func twins(k *kong.Kong) error {
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && flag.Name != "help" && flag.Name != "version" {
			flag.Envs = []string{twin(flag.Name)}
			flag.Value.Tag.Envs = flag.Envs
		}
		return next(nil)
	})
}

// listTwin reads the variable of a flag that may be repeated: there, commas separate values,
// which a flag may hold, for it is repeated instead. A comma after a backslash is a comma.
func listTwin(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !flag.IsSlice() || len(flag.Envs) == 0 {
		return nil, nil
	}
	text, ok := os.LookupEnv(flag.Envs[0])
	if !ok {
		return nil, nil
	}
	var values []any
	for _, value := range kong.SplitEscaped(text, ',') {
		values = append(values, value)
	}
	return values, nil
}

// twin is the environment variable that stands for a flag.
func twin(flag string) string {
	return "STILLWIRE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// wrongUsage turns an error of the parser into one that says where help is. Who does not name
// a command is told which there are.
func wrongUsage(k *kong.Kong, err error, args []string) error {
	if errors.Is(err, errHelpShown) {
		return err
	}
	said := inItsName(err.Error(), args)
	parse := (*kong.ParseError)(nil)
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		return &wrong{fmt.Errorf("%s\nsee: %s --help", said, parse.Context.Selected().FullPath())}
	}
	if strings.HasPrefix(said, "unexpected argument ") {
		said = "no such command: " + strings.TrimPrefix(said, "unexpected argument ")
	}
	var names []string
	for _, node := range k.Model.Children {
		names = append(names, node.Name)
	}
	return &wrong{fmt.Errorf("%s\ncommands: %s\nsee: stillwire --help", said, strings.Join(names, ", "))}
}

// wrong is an error in what the program was given: flags, files, keys.
type wrong struct{ err error }

func (w *wrong) Error() string { return w.err.Error() }
func (w *wrong) Unwrap() error { return w.err }

// reported is the end of a command that has said all there is to say: only the code is left.
type reported struct{ code int }

func (r reported) Error() string { return fmt.Sprintf("exit code %d", r.code) }

// report says what went wrong and returns the exit code for it.
func (p *program) report(err error) int {
	var done reported
	switch {
	case err == nil || errors.Is(err, errHelpShown):
		return exitDone
	case errors.As(err, &done):
		return done.code
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.stderr, "stillwire: %s\n", line)
	}
	return codeOf(err)
}

func codeOf(err error) int {
	if w := (*wrong)(nil); errors.As(err, &w) {
		return exitWrong
	}
	return exitFailed
}

// helpFlag is -h and --help: it prints the help of the command it stands behind.
type helpFlag bool

// IgnoreDefault keeps the flag from being reset, which would run BeforeReset.
func (helpFlag) IgnoreDefault() {}

// BeforeReset runs before arguments are validated, so that help needs none.
func (helpFlag) BeforeReset(ctx *kong.Context) error {
	if err := printHelp(ctx); err != nil {
		return err
	}
	return errHelpShown
}

// versionFlag is --version: it prints what the command version does.
type versionFlag bool

// IgnoreDefault keeps the flag from being reset, which would run BeforeReset.
func (versionFlag) IgnoreDefault() {}

// BeforeReset runs before arguments are validated, so that no command is needed.
func (versionFlag) BeforeReset(p *program) error {
	if err := (&versionCommand{}).Run(p); err != nil {
		return err
	}
	return errHelpShown
}

// helpCommand is "stillwire help" and "stillwire help COMMAND".
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command to explain."`
}

func (c *helpCommand) Run(p *program) error {
	parser, err := p.parser()
	if err != nil {
		return err
	}
	return showHelp(parser, c.Command)
}

// showHelp prints the help of a command, or of the program.
func showHelp(parser *kong.Kong, command []string) error {
	ctx, err := kong.Trace(parser, command)
	if err != nil {
		return err
	}
	if len(command) > 0 && ctx.Selected() == nil {
		return wrongUsage(parser, ctx.Error, nil)
	}
	return printHelp(ctx)
}

func printHelp(ctx *kong.Context) error {
	options := kong.HelpOptions{
		Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 80,
		ValueFormatter: func(value *kong.Value) string { return value.Help },
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || ctx.Selected() != nil {
		return err
	}
	_, err := io.WriteString(ctx.Stdout, footer)
	return err
}

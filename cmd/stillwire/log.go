package main

import (
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// logFlags says what is logged and how. The log goes to stderr.
type logFlags struct {
	LogLevel  string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Log from this level up: debug, info, warn or error."`
	LogFormat string `enum:"auto,json,console" default:"auto" placeholder:"FORMAT" help:"Log as json or console; auto is console on a terminal."`
}

// logger returns the logger that the flags ask for.
func (f logFlags) logger(w io.Writer) zerolog.Logger {
	level, err := zerolog.ParseLevel(f.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	if f.console(w) {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000", TimeLocation: time.Local, NoColor: !terminal(w) || os.Getenv("NO_COLOR") != ""}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// console reports whether people read the log, and not a program.
func (f logFlags) console(w io.Writer) bool {
	return f.LogFormat == "console" || f.LogFormat == "auto" && terminal(w)
}

func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

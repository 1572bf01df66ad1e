// Package tool is what the command line tools have in common: how one is named and run,
// and options that behave as getopt_long's. It imports pflag and the standard library.
package tool

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// A Tool is a program of its own inside the binary.
type Tool struct {
	Name  string // as a user types it
	Short string // one line of help
	Run   func(env *Env, args []string) (status int)
}

// Env is what a tool has of its process.
type Env struct {
	Argv0          string // what the user typed to run the tool
	Stdout, Stderr io.Writer
}

// Failf reports an error and returns the exit status for it.
func (e *Env) Failf(format string, args ...any) int {
	fmt.Fprintf(e.Stderr, format+"\n", args...)
	return 1
}

// Flags are the options of a tool. Numbers may be given in decimal, hexadecimal (0x) or
// octal (0), long options may be abbreviated, and options may follow arguments.
type Flags struct {
	*pflag.FlagSet
	env  *Env
	args string
}

// NewFlags makes an empty set. args is the part of the usage after the program's name,
// one line for each way to call it.
func NewFlags(env *Env, args string) *Flags {
	f := &Flags{pflag.NewFlagSet(env.Argv0, pflag.ContinueOnError), env, args}
	f.SortFlags = false
	f.SetOutput(io.Discard) // Parse prints what is to be printed
	return f
}

// Parse reads the command line. If it returns false the tool ends with that status.
func (f *Flags) Parse(args []string) (status int, ok bool) {
	f.SetNormalizeFunc(f.expand)
	err := f.FlagSet.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		f.usage(f.env.Stdout)
		return 0, false
	}
	if err != nil {
		return f.Misused(err.Error()), false
	}
	return 0, true
}

// Misused reports a wrong command line and returns the exit status for it.
func (f *Flags) Misused(why string) int {
	fmt.Fprintf(f.env.Stderr, "%s: %s\n", f.env.Argv0, why)
	f.usage(f.env.Stderr)
	return 1
}

// Help prints how the tool is used, as --help does, and returns the exit status for it.
func (f *Flags) Help() int {
	f.usage(f.env.Stdout)
	return 0
}

func (f *Flags) usage(w io.Writer) {
	fmt.Fprintln(w, "Usage:")
	for line := range strings.Lines(f.args) {
		fmt.Fprintf(w, "  %s %s\n", f.env.Argv0, strings.TrimSuffix(line, "\n"))
	}
	fmt.Fprintf(w, "\nOptions:\n%s", f.FlagUsages())
}

// expand completes an abbreviated long option if only one begins so.
func (f *Flags) expand(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	var full []string
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name == name {
			full = []string{name}
		} else if strings.HasPrefix(flag.Name, name) && (len(full) == 0 || full[0] != name) {
			full = append(full, flag.Name)
		}
	})
	if len(full) == 1 {
		return pflag.NormalizedName(full[0])
	}
	return pflag.NormalizedName(name)
}

// Package tool is what the command line tools have in common: how one is named and run,
// and options that behave as getopt_long's. It imports pflag and the standard library.
package tool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
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

// Writable is an error if a file cannot be written. It changes nothing.
func Writable(name string) error {
	_, missing := os.Lstat(name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = f.Close()
	if missing != nil {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// Flags are the options of a tool. Numbers may be given in decimal, hexadecimal (0x) or
// octal (0), long options may be abbreviated, and options may follow arguments.
type Flags struct {
	*pflag.FlagSet
	// Elsewhere is a clause on an option that the tool does not have, "-l" or "--post_list"; empty if there is nothing to say.
	Elsewhere func(option string) string

	env  *Env
	args string
}

// NewFlags makes an empty set. args is the part of the usage after the program's name,
// one line for each way to call it.
func NewFlags(env *Env, args string) *Flags {
	f := &Flags{FlagSet: pflag.NewFlagSet(env.Argv0, pflag.ContinueOnError), env: env, args: args}
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
		return f.Misused(f.explain(err)), false
	}
	return 0, true
}

// Has tells whether the tool has an option, written "-l" or "--post_list".
func (f *Flags) Has(option string) bool {
	if name, long := strings.CutPrefix(option, "--"); long {
		return f.Lookup(name) != nil
	}
	return f.ShorthandLookup(option[1:]) != nil
}

// numbers is what may be given to an option of a type.
var numbers = map[string]string{
	"int": fmt.Sprintf("a whole number below 2^%d", strconv.IntSize-1), "uint": fmt.Sprintf("a number from 0 to 2^%d-1", strconv.IntSize), "uint8": "a number from 0 to 255", "uint16": "a number from 0 to 65535", "uint32": "a number from 0 to 2^32-1",
	"float64": "a number, such as 2.5,", "duration": "a number and its unit, such as 500ms or 10s,",
}

// explain says what was wrong with a command line and what is right.
func (f *Flags) explain(err error) string {
	var invalid *pflag.InvalidValueError
	var lacks *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid) && numbers[invalid.GetFlag().Value.Type()] != "":
		return fmt.Sprintf("%s %s: %s is needed", optionOf(invalid.GetFlag()), invalid.GetValue(), numbers[invalid.GetFlag().Value.Type()])
	case errors.As(err, &lacks):
		return fmt.Sprintf("%s needs a value: %s", optionOf(lacks.GetFlag()), lacks.GetFlag().Usage)
	case errors.As(err, &unknown):
		option := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			option = "-" + unknown.GetSpecifiedName()[:1]
		}
		where := ""
		if f.Elsewhere != nil {
			where = f.Elsewhere(option)
		}
		if where == "" {
			where = "the usage below lists those that there are"
		}
		return fmt.Sprintf("unknown option %s: %s", option, where)
	default:
		return err.Error()
	}
}

// optionOf is how an option is written.
func optionOf(flag *pflag.Flag) string {
	if flag.Shorthand != "" {
		return "-" + flag.Shorthand
	}
	return "--" + flag.Name
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
	if f.args == "" {
		fmt.Fprintf(w, "  %s\n", f.env.Argv0)
	}
	if f.HasFlags() {
		fmt.Fprintf(w, "\nOptions:\n%s", f.FlagUsages())
	}
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

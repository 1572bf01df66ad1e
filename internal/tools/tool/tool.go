// Package tool has the common parts of the command line tools: their names and functions, and options that
// behave like getopt_long's. It imports internal/printable and pflag.
package tool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/verbena-rdma/verbena/internal/printable"
)

// A Tool is a program of its own inside the binary.
type Tool struct {
	Name  string // as the user types it
	Short string // one line of help
	Run   func(env *Env, args []string) (status int)
}

// Env is the environment of a tool.
type Env struct {
	Argv0          string // the command by which the user started the tool
	Stdout, Stderr io.Writer
	// Describe, if not nil, makes Flags.Parse pass the options to it and return false: the tool ends without having
	// done anything. Manual pages and shell completion learn the options this way.
	Describe func(*Flags)
}

// Failf reports an error and returns the exit status for it. What in it would command the terminal is escaped: errors
// quote other programs and hosts. An error of Output is not repeated.
func (e *Env) Failf(format string, args ...any) int {
	for _, a := range args {
		if err, ok := a.(error); ok && Reported(err) {
			return 1
		}
	}
	fmt.Fprint(e.Stderr, printable.Lines(fmt.Sprintf(format, args...)+"\n"))
	return 1
}

// Writable returns an error if a file cannot be written. It changes nothing.
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

// Flags are the options of a tool. Numbers may be decimal, hexadecimal (0x) or octal (0), long options may
// be abbreviated, and options may follow arguments.
type Flags struct {
	*pflag.FlagSet
	// Elsewhere returns a clause about an option that the tool lacks, "-l" or "--post_list"; empty for
	// none.
	Elsewhere func(option string) string
	// Words, if not nil, proposes what can follow the arguments args, for shell completion.
	Words func(args []string) []string
	// Programs: the arguments are a program and its arguments, for shell completion.
	Programs bool

	env  *Env
	args string
}

// NewFlags returns an empty set. args is the usage after the program's name, with one line for each form.
func NewFlags(env *Env, args string) *Flags {
	f := &Flags{FlagSet: pflag.NewFlagSet(env.Argv0, pflag.ContinueOnError), env: env, args: args}
	f.SortFlags = false
	f.SetOutput(io.Discard) // Parse prints the errors
	return f
}

// Parse parses the command line. If it returns false the tool ends with status.
func (f *Flags) Parse(args []string) (status int, ok bool) {
	if f.env.Describe != nil {
		f.env.Describe(f)
		return 0, false
	}
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

// Forms returns the usage after the program's name, one string for each form.
func (f *Flags) Forms() []string { return strings.Split(f.args, "\n") }

// Has reports whether the tool has an option, written "-l" or "--post_list".
func (f *Flags) Has(option string) bool {
	if name, long := strings.CutPrefix(option, "--"); long {
		return f.Lookup(name) != nil
	}
	return f.ShorthandLookup(option[1:]) != nil
}

// numbers describes the values of numeric option types.
var numbers = map[string]string{
	"int":      fmt.Sprintf("a whole number below 2^%d", strconv.IntSize-1),
	"uint":     fmt.Sprintf("a number from 0 to 2^%d-1", strconv.IntSize),
	"uint8":    "a number from 0 to 255",
	"uint16":   "a number from 0 to 65535",
	"uint32":   "a number from 0 to 2^32-1",
	"float64":  "a number, such as 2.5",
	"duration": "a number and its unit, such as 500ms or 10s",
}

// explain returns the text of a usage error with the allowed values.
func (f *Flags) explain(err error) string {
	var invalid *pflag.InvalidValueError
	var lacks *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid) && numbers[invalid.GetFlag().Value.Type()] != "":
		return fmt.Sprintf("%s %s: must be %s", optionOf(invalid.GetFlag()), invalid.GetValue(),
			numbers[invalid.GetFlag().Value.Type()])
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
			return "unknown option " + option
		}
		return fmt.Sprintf("unknown option %s: %s", option, where)
	default:
		return err.Error()
	}
}

// optionOf returns an option as the user types it.
func optionOf(flag *pflag.Flag) string {
	if flag.Shorthand != "" {
		return "-" + flag.Shorthand
	}
	return "--" + flag.Name
}

// Misused reports a usage error, with a hint to --help, and returns its exit status.
func (f *Flags) Misused(why string) int {
	return f.env.Failf("%s: %s\n%s --help lists the options.", f.env.Argv0, why, f.env.Argv0)
}

// Help prints the usage as --help does, and returns the exit status.
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

// expand completes an unambiguous abbreviation of a long option.
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

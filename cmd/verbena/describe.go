package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// optionsOf returns the options of a tool and its usage lines, without running it. It returns nil if the tool has no
// options on this system.
func optionsOf(t *tool.Tool) *tool.Flags {
	var found *tool.Flags
	env := &tool.Env{Argv0: t.Name, Stdout: io.Discard, Stderr: io.Discard,
		Describe: func(f *tool.Flags) { found = f }}
	t.Run(env, nil)
	return found
}

// takesDevice lists the options whose value is the name of a device.
var takesDevice = []string{"ib-dev", "interface"}

// complete proposes what can follow the words args on the command line of a tool: its options after a dash, devices
// after an option that takes one, or where the usage has DEVICE, the words that the tool itself proposes, and else
// files.
func complete(t *tool.Tool, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	f := optionsOf(t)
	if f == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var before *pflag.Flag // the option whose value the word is
	if len(args) > 0 {
		before = valueless(f, args[len(args)-1])
	}
	if name, value, found := strings.Cut(word, "="); found && strings.HasPrefix(name, "--") {
		before = f.Lookup(name[2:])
		if before != nil && slices.Contains(takesDevice, before.Name) {
			return prefixed(devices(), value, name+"="), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	switch {
	case f.Programs && (len(arguments(f, args)) > 0 || slices.Contains(args, "--") || !strings.HasPrefix(word, "-")) &&
		before == nil:
		return completeProgram(f, args, word)
	case before != nil && slices.Contains(takesDevice, before.Name):
		return prefixed(devices(), word, ""), cobra.ShellCompDirectiveNoFileComp
	case before != nil:
		return nil, cobra.ShellCompDirectiveDefault
	case strings.HasPrefix(word, "-"):
		return prefixed(options(f), word, ""), cobra.ShellCompDirectiveNoFileComp
	case f.Words != nil:
		return prefixed(f.Words(arguments(f, args)), word, ""), cobra.ShellCompDirectiveNoFileComp
	case slices.ContainsFunc(f.Forms(), func(s string) bool { return strings.HasSuffix(s, " [DEVICE]") }):
		return prefixed(devices(), word, ""), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// valueless returns the option in a word that needs a value and has none; nil if the word is something else.
func valueless(f *tool.Flags, word string) *pflag.Flag {
	var o *pflag.Flag
	switch {
	case strings.HasPrefix(word, "--"):
		o = f.Lookup(word[2:])
	case len(word) > 1 && word[0] == '-':
		o = f.ShorthandLookup(word[len(word)-1:])
	}
	if o == nil || o.NoOptDefVal != "" {
		return nil
	}
	return o
}

// arguments returns the words without options and their values.
func arguments(f *tool.Flags, words []string) (list []string) {
	for i := 0; i < len(words); i++ {
		switch {
		case !strings.HasPrefix(words[i], "-"):
			list = append(list, words[i])
		case valueless(f, words[i]) != nil:
			i++
		}
	}
	return list
}

// options lists the options of a tool with their descriptions.
func options(f *tool.Flags) (list []cobra.Completion) {
	f.VisitAll(func(o *pflag.Flag) {
		if o.Hidden {
			return
		}
		_, text := pflag.UnquoteUsage(o)
		text, _, _ = strings.Cut(text, "\n")
		if o.Shorthand != "" {
			list = append(list, cobra.CompletionWithDesc("-"+o.Shorthand, text))
		}
		list = append(list, cobra.CompletionWithDesc("--"+o.Name, text))
	})
	return append(list, cobra.CompletionWithDesc("--help", "print the usage"))
}

// devices lists the names of the devices with their addresses.
func devices() (list []cobra.Completion) {
	all, _ := verbs.Devices() // a completion has no place for an error
	for _, d := range all {
		list = append(list, cobra.CompletionWithDesc(d.Name(), d.Interface()))
	}
	return list
}

// prefixed returns the completions that begin with word, each after lead.
func prefixed(list []cobra.Completion, word, lead string) (some []cobra.Completion) {
	for _, c := range list {
		if strings.HasPrefix(c, word) {
			some = append(some, lead+c)
		}
	}
	return some
}

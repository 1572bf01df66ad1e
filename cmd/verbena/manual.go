package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/tools/version"
)

// A shell is one that has a completion script.
type shell struct {
	name  string
	file  string // in the folder of "verbena manual", as packages of the shell name it
	write func(root *cobra.Command, w io.Writer) error
}

// shells lists them.
var shells = []shell{
	{"bash", "bash/verbena", func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) }},
	{"zsh", "zsh/_verbena", (*cobra.Command).GenZshCompletion},
	{"fish", "fish/verbena.fish", func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) }},
}

// manual writes the manual pages and the completion scripts, for packages: verbena manual FOLDER.
func manual(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "FOLDER")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() != 1 {
		return f.Misused("must be one folder, which gets man1, bash, zsh and fish")
	}
	if err := writeManual(f.Arg(0)); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

func writeManual(dir string) error {
	man := filepath.Join(dir, "man1")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	if err := writePages(man); err != nil {
		return err
	}
	for _, s := range shells {
		var b bytes.Buffer
		if err := writeCompletion(&b, s.name); err != nil {
			return err
		}
		file := filepath.Join(dir, s.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// description is the section of a page that has the text of the name section again.
var description = regexp.MustCompile(`(?s)\.SH DESCRIPTION\n.*?(\.SH |\z)`)

func writePages(dir string) error {
	root := described()
	for _, c := range append(root.Commands(), root) { // the page of root adds a command to it
		if c.Hidden {
			continue
		}
		var b bytes.Buffer
		header := &doc.GenManHeader{Section: "1", Source: "Verbena " + version.Of().Version, Manual: "Verbena"}
		if err := doc.GenMan(c, header, &b); err != nil {
			return err
		}
		page := b.Bytes()
		if c.Long == "" {
			page = description.ReplaceAll(page, []byte("$1"))
		}
		file := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		if err := os.WriteFile(file, page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// described returns "verbena" with the options of each tool, for pages about it. It does not run tools.
func described() *cobra.Command {
	root := rootCommand(&tool.Env{Stdout: io.Discard, Stderr: io.Discard}, new(int))
	root.DisableAutoGenTag = true
	all := slices.Concat(own, tools)
	for _, c := range root.Commands() {
		i := slices.IndexFunc(all, func(t tool.Tool) bool { return t.Name == c.Name() })
		if i < 0 {
			continue
		}
		c.DisableFlagParsing = false
		f := optionsOf(&all[i])
		if f == nil {
			continue
		}
		c.Use = c.Name() + " " + f.Forms()[0]
		c.DisableFlagsInUseLine = true
		for _, form := range f.Forms()[1:] {
			c.Long += fmt.Sprintf("    verbena %s %s\n", c.Name(), form)
		}
		if c.Long != "" {
			c.Long = "Other forms:\n\n" + c.Long
		}
		if c.GroupID == "tools" {
			c.Long = "The options and the output are those of the C program " + c.Name() + ".\n\n" + c.Long
		}
		c.Flags().AddFlagSet(f.FlagSet)
	}
	return root
}

// completion writes the script that makes a shell complete the commands, and the tools under their own names:
// verbena completion SHELL.
func completion(env *tool.Env, args []string) int {
	var names []string
	for _, s := range shells {
		names = append(names, s.name)
	}
	f := tool.NewFlags(env, strings.Join(names, "|"))
	f.Words = func(args []string) []string {
		if len(args) > 0 {
			return nil
		}
		return names
	}
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() != 1 || !slices.Contains(names, f.Arg(0)) {
		return f.Misused("must be one shell: " + strings.Join(names, ", "))
	}
	if err := writeCompletion(env.Stdout, f.Arg(0)); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

func writeCompletion(w io.Writer, name string) error {
	root := rootCommand(&tool.Env{Stdout: io.Discard, Stderr: io.Discard}, new(int))
	i := slices.IndexFunc(shells, func(s shell) bool { return s.name == name })
	if err := shells[i].write(root, w); err != nil {
		return err
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	all := strings.Join(names, " ")
	// The script calls the first word of the command line, so a link to this program completes too.
	text := map[string]string{
		"bash": "for t in " + all + "; do complete -o default -F __start_verbena $t; done\nunset t\n",
		"zsh":  "compdef _verbena " + all + "\n",
		"fish": "for t in " + all + "\n    complete -c $t -n '__verbena_clear_perform_completion_once_result'\n" +
			"    complete -c $t -n 'not __verbena_requires_order_preservation && __verbena_prepare_completions' -f " +
			"-a '$__verbena_comp_results'\nend\n",
	}[name]
	_, err := io.WriteString(w, "\n# The tools under their own names.\n"+text)
	return err
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/tools/version"
)

// run runs the tool that the program's name or first argument selects, and returns the exit status.
func run(argv []string, env *tool.Env) int {
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	for _, t := range tools {
		if t.Name == name {
			if len(argv) > 1 && strings.HasPrefix(argv[1], cobra.ShellCompRequestCmd) { // __completeNoDesc too
				argv = append([]string{"verbena", argv[1], t.Name}, argv[2:]...)
				break
			}
			env.Argv0 = argv[0]
			return t.Run(env, argv[1:])
		}
	}
	cobra.EnableCommandSorting = false // keep the order below
	status := 0
	root := rootCommand(env, &status)
	root.SetArgs(argv[1:])
	if err := root.Execute(); tool.Reported(err) {
		return 1
	} else if err != nil {
		// Cobra's error for a misspelt name has several lines.
		fmt.Fprintf(env.Stderr, "verbena: %s\nverbena --help lists the commands\n", strings.TrimSpace(err.Error()))
		return 1
	}
	return status
}

// rootCommand returns "verbena". Each tool is a subcommand that stores its exit status in *status.
func rootCommand(env *tool.Env, status *int) *cobra.Command {
	root := &cobra.Command{
		Use:   "verbena",
		Short: "RDMA in user space: no hardware, no kernel module, no root",
		Long: "RDMA in user space: no hardware, no kernel module, no root.\n\n" +
			"Begin with: verbena demo",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Of().Version,
		// The completion command below has the tools' own names too.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(versionText())
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	add := func(group string, list []tool.Tool) {
		for _, t := range list {
			root.AddCommand(&cobra.Command{
				Use:                t.Name,
				Short:              t.Short,
				GroupID:            group,
				Hidden:             group == "",
				DisableFlagParsing: true, // each tool parses its own options
				ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]cobra.Completion,
					cobra.ShellCompDirective) {
					return complete(&t, args, word)
				},
				Run: func(_ *cobra.Command, args []string) {
					env.Argv0 = "verbena " + t.Name
					*status = t.Run(env, args)
				},
			})
		}
	}
	root.AddGroup(&cobra.Group{ID: "own", Title: "To begin with:"},
		&cobra.Group{ID: "tools", Title: "The tools of the C libraries:"})
	add("own", own)
	add("tools", tools)
	root.SetHelpCommand(helpCommand(root))
	add("", []tool.Tool{
		{Name: duo.Command, Run: secondProcess},
		{Name: "links", Short: "create a link for each tool: verbena links FOLDER", Run: links},
		{Name: "manual", Short: "write manual pages and completion scripts: verbena manual FOLDER", Run: manual},
		{Name: "completion", Short: "print a completion script: verbena completion bash, zsh or fish", Run: completion},
	})
	return root
}

// versionText is the output of verbena --version.
func versionText() string {
	var b strings.Builder
	version.Of().Print(&b)
	return b.String()
}

// helpCommand returns "verbena help [TOOL]", which runs the tool with --help: only the tool knows its
// options.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return root.Help()
			}
			c, rest, err := root.Find(args)
			switch {
			case err != nil:
				return err
			case c == root || len(rest) > 0:
				return fmt.Errorf("no help on %q", strings.Join(args, " "))
			case c.DisableFlagParsing:
				c.Run(c, []string{"--help"})
				return nil
			}
			return c.Help()
		},
	}
}

// links creates a link to this program for each tool: verbena links FOLDER. It makes the folder if there is none.
func links(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "FOLDER")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() != 1 {
		return f.Misused("must be one folder, which gets a link for each tool")
	}
	exe, err := os.Executable()
	if err != nil {
		return env.Failf("verbena links: %v", err)
	}
	target := exe
	if dir, err := filepath.Abs(f.Arg(0)); err == nil && dir == filepath.Dir(exe) {
		target = filepath.Base(exe) // a relative link, so that the folder can be moved
	}
	if err := os.MkdirAll(f.Arg(0), 0o755); err != nil {
		return env.Failf("verbena links: %v", err)
	}
	for _, t := range tools {
		link := filepath.Join(f.Arg(0), t.Name)
		if runtime.GOOS == "windows" {
			link += ".exe"
		}
		if old, err := os.Lstat(link); err == nil && old.Mode()&os.ModeSymlink != 0 {
			if err := os.Remove(link); err != nil {
				return env.Failf("verbena links: %v", err)
			}
		}
		if err := os.Symlink(target, link); err != nil {
			return env.Failf("verbena links: %v", err)
		}
	}
	return 0
}

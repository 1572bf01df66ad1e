package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// completeProgram proposes programs of the search path, and after one that has the name of a tool here, whose options
// are the same, what the tool has. Otherwise it leaves the word to the shell, which proposes files.
func completeProgram(f *tool.Flags, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	given := arguments(f, args)
	switch {
	case len(given) == 0 && !strings.Contains(word, "/"):
		return programs(os.Getenv("PATH"), word), cobra.ShellCompDirectiveNoFileComp
	case len(given) > 0:
		name := filepath.Base(given[0])
		i := slices.IndexFunc(tools, func(t tool.Tool) bool { return t.Name == name })
		if i >= 0 {
			return complete(&tools[i], args[slices.Index(args, given[0])+1:], word)
		}
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// programs lists the names of the executable files in the folders of path that begin with word.
func programs(path, word string) (names []cobra.Completion) {
	for _, dir := range filepath.SplitList(path) {
		files, _ := os.ReadDir(cmp.Or(dir, ".")) // a folder of the path that cannot be read has no programs
		for _, e := range files {
			if !strings.HasPrefix(e.Name(), word) {
				continue
			}
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() &&
				info.Mode()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

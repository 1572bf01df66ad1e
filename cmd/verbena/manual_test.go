package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Each tool describes its options without running.
func TestToolsDescribeTheirOptions(t *testing.T) {
	for _, tl := range slices.Concat(own, tools) {
		if f := optionsOf(&tl); f == nil || len(f.Forms()) == 0 {
			t.Errorf("%s has no description", tl.Name)
		}
	}
}

// The manual has a page for each tool with its options, which man can format, and scripts that their shells can parse.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	if _, errs, status := output(t, "verbena", "manual", dir); status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	for _, tl := range slices.Concat(own, tools) {
		page, err := os.ReadFile(filepath.Join(dir, "man1", "verbena-"+tl.Name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		text := strings.NewReplacer(`\-`, "-", `\&`, "").Replace(string(page))
		for _, o := range options(optionsOf(&tl)) {
			if name, _, _ := strings.Cut(o, "\t"); !strings.Contains(text, name) {
				t.Errorf("the page of %s lacks %s", tl.Name, name)
			}
		}
		if n := strings.Count(text, tl.Short); n != 1 {
			t.Errorf("the page of %s has %q %d times, want once", tl.Name, tl.Short, n)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "man1", "verbena.1")); err != nil {
		t.Error(err)
	}
	for _, s := range shells {
		file := filepath.Join(dir, s.file)
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
		if _, err := exec.LookPath(s.name); err != nil {
			t.Logf("%s is not installed: its script was not parsed", s.name)
			continue
		}
		if out, err := exec.Command(s.name, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
	if _, errs, status := output(t, "verbena", "manual"); status != 1 || !strings.Contains(errs, "one folder") {
		t.Errorf("without a folder: status %d, %s", status, errs)
	}
}

// proposals returns what the program proposes for a command line whose last word is incomplete.
func proposals(t *testing.T, name string, words ...string) []string {
	t.Helper()
	out, errs, status := output(t, name, append([]string{"__completeNoDesc"}, words...)...)
	if status != 0 {
		t.Fatalf("%s %q: status %d\n%s", name, words, status, errs)
	}
	list := strings.Fields(out)
	return list[:len(list)-1] // without the directive
}

func TestCompletion(t *testing.T) {
	bin := t.TempDir()
	for name, mode := range map[string]os.FileMode{"zz_one": 0o755, "zz_two": 0o755, "zz_text": 0o644} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+filepath.Join(bin, "none"))
	for _, c := range []struct {
		name, words string // the words are separated by blanks; a blank at the end begins an empty word
		want        []string
	}{
		{"verbena", "ibv_devin", []string{"ibv_devinfo"}},
		{"verbena", "ibv_devinfo --l", []string{"--list"}},
		{"verbena", "ibv_devinfo -d ", []string{"vrb_test"}},
		{"verbena", "ibv_devinfo -vd ", []string{"vrb_test"}},
		{"verbena", "ibv_devinfo --ib-dev=v", []string{"--ib-dev=vrb_test"}},
		{"verbena", "capture -i vrb", []string{"vrb_test"}},
		{"verbena", "top ", []string{"vrb_test"}},
		{"verbena", "rdma r", []string{"resource"}},
		{"verbena", "rdma -j res sh q", []string{"qp"}},
		{"verbena", "rdma res show v", []string{"vrb_test"}},
		{"verbena", "rdma res show qp link ", []string{"vrb_test/1"}},
		{"verbena", "rdma link show ", []string{"vrb_test/1"}},
		{"verbena", "ib_send_bw -d x", nil},
		{"verbena", "ib_send_bw ", nil},
		{"verbena", "completion f", []string{"fish"}},
		{"verbena", "completion bash ", nil},
		{"verbena", "run -- zz", []string{"zz_one", "zz_two"}},
		{"verbena", "run --explain -- zz_o", []string{"zz_one"}},
		{"verbena", "run zz_o", []string{"zz_one"}},
		{"verbena", "run --expl", []string{"--explain"}},
		{"verbena", "run -- -", nil},
		{"verbena", "run -- ./zz", nil},
		{"verbena", "run -- zz_one z", nil},
		{"verbena", "run -- zz_one --expl", nil},
		{"verbena", "run --devices=x -- /usr/bin/ibv_devinfo -d ", []string{"vrb_test"}},
		{"verbena", "run -- ibv_devinfo --l", []string{"--list"}},
		{"ibv_devinfo", "-d ", []string{"vrb_test"}},
		{"ibv_devinfo", "--verb", []string{"--verbose"}},
	} {
		if got := proposals(t, c.name, strings.Split(c.words, " ")...); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %q, want %q", c.name, c.words, got, c.want)
		}
	}
	if got := proposals(t, "verbena", "ibv_devinfo", "-"); !slices.Contains(got, "-d") ||
		!slices.Contains(got, "--ib-dev") || !slices.Contains(got, "--help") {
		t.Errorf("options: %q", got)
	}
	if got := proposals(t, "verbena", ""); slices.Contains(got, "manual") || !slices.Contains(got, "demo") {
		t.Errorf("commands: %q", got)
	}
}

// The script for bash completes a tool under its own name.
func TestCompletionInBash(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	var script bytes.Buffer
	env := &tool.Env{Argv0: "verbena completion", Stdout: &script, Stderr: os.Stderr}
	if status := completion(env, []string{"bash"}); status != 0 {
		t.Fatalf("status %d", status)
	}
	// What the package bash-completion has for an interactive shell.
	script.WriteString(`
_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
__ltrim_colon_completions() { :; }
COMP_TYPE=9
COMP_WORDS=("$LINK" -d "")
COMP_CWORD=2
complete -p ibv_devinfo
__start_verbena
echo "${COMPREPLY[@]}"
`)
	cmd := exec.Command("bash", "--norc", "-c", script.String())
	cmd.Env = append(os.Environ(), "VERBENA_DEVICES=vrb_test="+ownAddr, "LINK="+link(t, "ibv_devinfo"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "__start_verbena ibv_devinfo") ||
		!strings.Contains(string(out), "\nvrb_test") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, args := range [][]string{nil, {"csh"}, {"bash", "zsh"}} {
		if status := completion(&tool.Env{Stdout: &script, Stderr: &script}, args); status != 1 {
			t.Errorf("%q: status %d", args, status)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if out, errs, status := output(t, "verbena", arg); status != 0 || errs != "" ||
			!strings.HasPrefix(out, "verbena ") || !strings.Contains(out, "\nbuilt   with go") {
			t.Errorf("%s: status %d\n%s%s", arg, status, out, errs)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// TestMain makes the test binary the program if it was started through a link with another name or as the
// second process.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if !strings.Contains(name, ".test") || len(os.Args) > 1 && os.Args[1] == duo.Command {
		main()
	}
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each child process sleeps 1 s when it ends
	}
	os.Exit(m.Run())
}

// link creates a link to this program with the name of a tool: on Windows a copy, since not every user may make
// symbolic links, and Wine starts none.
func link(t *testing.T, name string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if runtime.GOOS == "windows" {
		path += ".exe"
		program, err := os.ReadFile(exe)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Symlink(exe, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs the program under a name, with a device at an address. The program is killed after two minutes
// or at the end of the test.
func start(t *testing.T, addr, name string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd = command(t, addr, name, args...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdout, stderr
}

// command returns the command that start starts.
func command(t *testing.T, addr, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, link(t, name), args...)
	cmd.Env = append(os.Environ(), "VERBENA_DEVICES=vrb_test="+addr)
	return cmd
}

// output returns the output and the exit status of a run.
func output(t *testing.T, name string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd, out, errs := start(t, ownAddr, name, args...)
	_ = cmd.Wait()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Unknown tools are an error; help for a tool comes from the tool.
func TestHelpOnTools(t *testing.T) {
	own, _, _ := output(t, "verbena", "ibv_devinfo", "--help")
	if got, errs, status := output(t, "verbena", "help", "ibv_devinfo"); status != 0 || got != own ||
		!strings.Contains(got, "--ib-dev") {
		t.Errorf("status %d\n%s%s\nwant\n%s", status, got, errs, own)
	}
	if got, errs, status := output(t, "verbena", "help"); status != 0 || !strings.Contains(got, "ibv_devinfo") {
		t.Errorf("status %d\n%s%s", status, got, errs)
	}
	if got, errs, status := output(t, "verbena", "help", "completion"); status != 0 || !strings.Contains(got, "bash") {
		t.Errorf("status %d\n%s%s", status, got, errs)
	}
	for _, args := range []string{"help nope", "nope", "ibv_devinf", "help ibv_devinfo x"} {
		out, errs, status := output(t, "verbena", strings.Fields(args)...)
		if status != 1 || out != "" || !strings.HasPrefix(errs, "verbena: ") ||
			!strings.HasSuffix(errs, "\nverbena --help lists the commands\n") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", args, status, out, errs)
		}
	}
}

func TestLinkRunsTool(t *testing.T) {
	out, errs, status := output(t, "ibv_devices")
	want := "    device          \t   node GUID\n    ------          \t----------------\n    vrb_test        \t"
	if status != 0 || errs != "" || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 3 {
		t.Errorf("status %d\n%q\n%s", status, out, errs)
	}
	same, _, _ := output(t, "verbena", "ibv_devices")
	if same != out {
		t.Errorf("as a subcommand it prints\n%s", same)
	}
}

func TestDevinfo(t *testing.T) {
	out, errs, status := output(t, "ibv_devinfo", "-l")
	if status != 0 || out != "1 HCA found:\n\tvrb_test\n\n" || errs != "" {
		t.Errorf("-l: status %d\n%q\n%s", status, out, errs)
	}
	out, errs, status = output(t, "ibv_devinfo")
	if status != 0 || !strings.HasPrefix(out, "hca_id:\tvrb_test\n\ttransport:\t\t\tInfiniBand (0)\n") ||
		!strings.Contains(out, "PORT_ACTIVE (4)") {
		t.Errorf("status %d\n%s\n%s", status, out, errs)
	}
	out, errs, status = output(t, "ibv_devinfo", "-v", "-d", "vrb_test", "-i", "1")
	if status != 0 || !strings.Contains(out, "\t\t::ffff:"+ownAddr+", RoCE v2\n") {
		t.Errorf("-v: status %d\n%s\n%s", status, out, errs)
	}
	out, errs, status = output(t, "ibv_devinfo", "-d", "mlx5_0")
	if status != 255 || out != "" || errs != "IB device 'mlx5_0' wasn't found; there are vrb_test\n" {
		t.Errorf("-d mlx5_0: status %d\n%s\n%s", status, out, errs)
	}
	if _, errs, status = output(t, "ibv_devinfo", "-i", "2"); status == 0 ||
		!strings.Contains(errs, "port 2: must be 1 to 1") {
		t.Errorf("-i 2: status %d\n%s", status, errs)
	}
}

func TestHelp(t *testing.T) {
	out, _, status := output(t, "verbena")
	for _, tool := range append(own[:len(own):len(own)], tools...) {
		if !strings.Contains(out, "  "+tool.Name) || !strings.Contains(out, tool.Short) {
			t.Errorf("%s is missing", tool.Name)
		}
	}
	if status != 0 || strings.Contains(out, duo.Command) {
		t.Errorf("status %d\n%s", status, out)
	}
	if _, errs, status := output(t, "verbena", "nonsense"); status != 1 || !strings.Contains(errs, "nonsense") {
		t.Errorf("nonsense: status %d\n%s", status, errs)
	}
}

func TestLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	for range 2 { // the second time replaces the links
		if status := links(&tool.Env{Argv0: "links", Stdout: os.Stdout, Stderr: os.Stderr}, []string{dir}); status != 0 {
			t.Fatalf("status %d", status)
		}
	}
	made, err := os.ReadDir(dir)
	if os.Getenv("VERBENA_EMULATED") == "windows" && len(made) == 0 {
		t.Skip("Wine 8 does not list symbolic links")
	}
	if err != nil || len(made) != len(tools) {
		t.Errorf("%v, %v", made, err)
	}
	out, _, status := output(t, "verbena", "links", "--help")
	if status != 0 || !strings.Contains(out, "verbena links FOLDER") {
		t.Errorf("--help: status %d\n%s", status, out)
	}
	if _, errs, status := output(t, "verbena", "links"); status != 1 || !strings.Contains(errs, "folder") {
		t.Errorf("without a folder: status %d\n%s", status, errs)
	}
}

// The tools that the manual mentions exist under their names.
func TestV_PKG_03_ToolsOfTheManual(t *testing.T) {
	have := map[string]bool{}
	for _, tool := range tools {
		have[tool.Name] = true
	}
	for _, name := range []string{"ibv_devinfo", "rping", "udaddy"} {
		if !have[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

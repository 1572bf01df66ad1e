package tool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testFlags(t *testing.T, args ...string) (port, iters int, events bool, rest []string, status int, ok bool, out,
	err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	f := NewFlags(&Env{Argv0: "prog", Stdout: &stdout, Stderr: &stderr}, "[options]\n[options] HOST")
	f.IntVarP(&port, "ib-port", "i", 1, "use this port")
	f.StringP("ib-dev", "d", "", "use this device")
	f.IntVarP(&iters, "iters", "n", 1000, "number of exchanges")
	f.BoolVarP(&events, "events", "e", false, "sleep on events")
	status, ok = f.Parse(args)
	return port, iters, events, f.Args(), status, ok, stdout.String(), stderr.String()
}

func TestFlagsLikeGetopt(t *testing.T) {
	for _, args := range []string{
		"-n 16 -e host", "-en16 host", "host -e -n 16", "--iters=16 --events host", "--iters 0x10 --ev host",
		"--it 020 -e host", "-e -n16 -- host",
	} {
		_, iters, events, rest, _, ok, _, errs := testFlags(t, strings.Fields(args)...)
		if !ok || iters != 16 || !events || len(rest) != 1 || rest[0] != "host" {
			t.Errorf("%s: iters %d, events %v, rest %q, %s", args, iters, events, rest, errs)
		}
	}
}

func TestFlagsMisused(t *testing.T) {
	for _, args := range []string{"-x", "-n", "-n ten", "--ib=1", "--itersx=1"} {
		_, _, _, _, status, ok, out, errs := testFlags(t, strings.Fields(args)...)
		if ok || status != 1 || out != "" || !strings.HasPrefix(errs, "prog: ") ||
			!strings.HasSuffix(errs, "\nprog --help lists the options.\n") || strings.Count(errs, "\n") != 2 {
			t.Errorf("%s: ok %v, status %d, stdout %q, stderr %q", args, ok, status, out, errs)
		}
	}
}

// Errors name the option as it was typed, and the allowed values.
func TestFlagsExplain(t *testing.T) {
	for args, want := range map[string]string{
		"-n ten":                  "prog: -n ten: must be " + numbers["int"],
		"-n 99999999999999999999": "prog: -n 99999999999999999999: must be " + numbers["int"],
		"-t 256":                  "prog: -t 256: must be a number from 0 to 255",
		"-p 65536":                "prog: -p 65536: must be a number from 0 to 65535",
		"-a x":                    "prog: -a x: must be a number, such as 2.5",
		"--wait 5":                "prog: --wait 5: must be a number and its unit, such as 500ms or 10s",
		"-d":                      "prog: -d needs a value: use this device",
		"-ex":                     "prog: unknown option -x",
		"--itersx=1":              "prog: unknown option --itersx",
		"-z":                      "prog: unknown option -z: other has it",
		"--zone":                  "prog: unknown option --zone: other has it",
	} {
		var stderr bytes.Buffer
		f := NewFlags(&Env{Argv0: "prog", Stdout: io.Discard, Stderr: &stderr}, "[options]")
		f.IntP("iters", "n", 1, "number of exchanges")
		f.Uint8P("qp-timeout", "t", 1, "ACK timeout")
		f.Uint16P("port", "p", 1, "TCP port")
		f.StringP("ib-dev", "d", "", "use this device")
		f.Float64P("autostop", "a", 0, "end after so many seconds")
		f.Duration("wait", 0, "how long to wait")
		f.BoolP("events", "e", false, "sleep on events")
		other := NewFlags(&Env{}, "")
		other.IntP("zone", "z", 1, "")
		f.Elsewhere = func(option string) string {
			if other.Has(option) {
				return "other has it"
			}
			return ""
		}
		if status, ok := f.Parse(strings.Fields(args)); ok || status != 1 ||
			stderr.String() != want+"\nprog --help lists the options.\n" {
			t.Errorf("%s: ok %v, status %d, %.200q; want %q", args, ok, status, stderr.String(), want)
		}
	}
}

// A tool without options prints none.
func TestHelpWithoutOptions(t *testing.T) {
	var stdout bytes.Buffer
	f := NewFlags(&Env{Argv0: "prog", Stdout: &stdout, Stderr: io.Discard}, "")
	if status, ok := f.Parse([]string{"--help"}); ok || status != 0 || stdout.String() != "Usage:\n  prog\n" {
		t.Errorf("ok %v, status %d, %q", ok, status, &stdout)
	}
}

func TestHelp(t *testing.T) {
	_, _, _, _, status, ok, out, errs := testFlags(t, "--help")
	if ok || status != 0 || errs != "" || !strings.Contains(out, "-n, --iters int") {
		t.Errorf("ok %v, status %d, stdout %q, stderr %q", ok, status, out, errs)
	}
}

// Writable neither creates nor changes a file.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x")
	if err := Writable(file); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was left: %v", err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Writable(file); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "no", "x")} {
		if Writable(bad) == nil {
			t.Errorf("%s can be written", bad)
		}
	}
}

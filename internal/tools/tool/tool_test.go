package tool

import (
	"bytes"
	"strings"
	"testing"
)

func testFlags(t *testing.T, args ...string) (port, iters int, events bool, rest []string, status int, ok bool, out, err string) {
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
		if ok || status != 1 || out != "" || !strings.HasPrefix(errs, "prog: ") || !strings.Contains(errs, "prog [options] HOST") {
			t.Errorf("%s: ok %v, status %d, stdout %q, stderr %q", args, ok, status, out, errs)
		}
	}
}

func TestHelp(t *testing.T) {
	_, _, _, _, status, ok, out, errs := testFlags(t, "--help")
	if ok || status != 0 || errs != "" || !strings.Contains(out, "-n, --iters int") {
		t.Errorf("ok %v, status %d, stdout %q, stderr %q", ok, status, out, errs)
	}
}

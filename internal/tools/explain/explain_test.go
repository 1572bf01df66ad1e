package explain

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

const captures = "../../../testdata/pcap/"

func explain(args ...string) (status int, stdout, stderr string) {
	var o, e bytes.Buffer
	status = run(&tool.Env{Argv0: "verbena explain", Stdout: &o, Stderr: &e}, args)
	return status, o.String(), e.String()
}

// What Linux peers did, recorded on a wire, in words.
func TestExplain(t *testing.T) {
	for file, want := range map[string][]string{
		"rc_pingpong.pcap": {"SEND, 512 bytes", "ACK up to PSN"},
		"nak_rkey.pcap":    {"NAK remote access error"},
		"send_rnr.pcap":    {"RNR NAK: no receive posted", "sent again", "RNR NAKs"},
		"rping.pcap":       {"CM ", "READ of", "answer to the READ", "WRITE of"},
		"atomic_fadd.pcap": {"FETCH & ADD at", "answer to the atomic"},
		"rc_loss.pcap":     {"sent again"},
	} {
		status, out, stderr := explain(captures + file)
		if status != 0 {
			t.Errorf("%s: %d %s", file, status, stderr)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%.3000s", file, w, out)
			}
		}
	}
}

func TestExplainSVG(t *testing.T) {
	svg := t.TempDir() + "/x.svg"
	if status, _, stderr := explain("--svg", svg, captures+"rping.pcap"); status != 0 {
		t.Fatal(stderr)
	}
	b, err := os.ReadFile(svg)
	if err != nil || !bytes.HasPrefix(b, []byte("<svg")) || bytes.Count(b, []byte("marker-end")) < 5 {
		t.Errorf("%v %.300s", err, b)
	}
}

// What cannot be read says what to do; what can be read of it is shown.
func TestExplainBadInput(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile(captures + "rc_pingpong.pcap")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		if err := os.WriteFile(dir+"/"+name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir + "/" + name
	}
	for file, want := range map[string]string{
		write("empty", nil): "empty",
		write("text", []byte("hello, this is no capture at all")): "neither pcapng nor pcap",
		write("cut", whole[:len(whole)-7]):                        "ends in the middle",
		dir + "/missing":                                          "no such file",
	} {
		status, out, stderr := explain(file)
		if status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %q", file, status, stderr)
		}
		if strings.HasSuffix(file, "cut") && !strings.Contains(out, "SEND, 512 bytes") {
			t.Errorf("the whole packets are not shown: %s", out)
		}
	}
}

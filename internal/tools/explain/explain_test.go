package explain

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

const captures = "../../../testdata/pcap/"

func explain(args ...string) (status int, stdout, stderr string) {
	var o, e bytes.Buffer
	status = run(&tool.Env{Argv0: "verbena explain", Stdout: &o, Stderr: &e}, args)
	return status, o.String(), e.String()
}

// Captures of Linux peers, recorded on a wire.
func TestExplain(t *testing.T) {
	for file, want := range map[string][]string{
		"rc_pingpong.pcap": {"SEND, 512 bytes", "ACK up to PSN"},
		"nak_rkey.pcap":    {"NAK remote access error"},
		"send_rnr.pcap":    {"RNR NAK: no receive posted", "sent again", "RNR NAKs"},
		"rping.pcap":       {"CM ", "READ of", "answer to the READ", "WRITE of"},
		"atomic_fadd.pcap": {"FETCH & ADD at", "answer to the atomic"},
		"rc_loss.pcap":     {"sent again"},

		"iwarp/rping_large.pcap": {"MPA request, revision 2, IRD 1", "READ of 30000 bytes at", "SEND, message 2, 16 bytes",
			"answer to the READ, 30000 bytes in 4 segments", "30000 bytes in 4 segments\n", "end of the stream",
			"26 FPDUs of iWARP, 18 messages and answers\n"},
		"iwarp/rping_crc.pcap": {"MPA reply, revision 2, CRCs", "READ of 100 bytes"},
		"iwarp/rstream.pcap":   {"40 bytes of private data", "WRITE at"},
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

// A capture may come through a pipe, as from "verbena capture -w -".
func TestExplainStandardInput(t *testing.T) {
	_, want, _ := explain(captures + "rping.pcap")
	file, err := os.ReadFile(captures + "rping.pcap")
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = before }()
	done := make(chan error)
	go func() {
		_, err := w.Write(file)
		done <- errors.Join(err, w.Close())
	}()
	status, out, stderr := explain("-")
	if err := errors.Join(<-done, r.Close()); status != 0 || out != want || err != nil {
		t.Errorf("status %d, %q, %v; not what the file gives:\n%.2000s", status, stderr, err, out)
	}
}

// A retransmitted message is one line of its own, and its packets are counted once.
func TestExplainCountsRetransmissions(t *testing.T) {
	file := t.TempDir() + "/x.pcapng"
	t.Setenv("VERBENA_PCAP", file)
	f := rdmatest.New(rdmatest.Config{})
	ctx, err := f.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := sendToNobody(ctx, f); err != nil {
		t.Fatal(err)
	}
	status, out, stderr := explain(file)
	if status != 0 || strings.Count(out, "SEND, 4096 bytes in 4 packets") != 3 ||
		strings.Count(out, "! sent again") != 2 ||
		!strings.Contains(out, "12 RoCEv2 packets, 3 messages and answers, 8 sent again") {
		t.Errorf("%d %s\n%s", status, stderr, out)
	}
}

// sendToNobody sends a message of four packets to a QP that does not exist, three times.
func sendToNobody(ctx *verbs.Context, f *rdmatest.Fabric) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(1, nil)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(make([]byte, 4096), 0)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	if err != nil {
		return err
	}
	unknown := verbs.QPInfo{Type: verbs.QPTypeRC, QPN: qp.QPN() + 1}
	if unknown.GID, err = ctx.QueryGID(1, 1); err != nil {
		return err
	}
	if err := qp.Connect(unknown, &verbs.ConnectOptions{MTU: verbs.MTU1024, RetryCnt: 2}); err != nil {
		return err
	}
	if err := qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(0, 4096)}}); err != nil {
		return err
	}
	f.Run(func() bool { return qp.State() == verbs.QPSErr }, time.Minute)
	// Closing the device ends the capture.
	return errors.Join(qp.Close(), mr.Close(), cq.Close(), pd.Close(), ctx.Close(), f.Close())
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

// Unreadable files give an error with a remedy. The readable part is shown.
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
		dir:                                                       "is a directory; name a capture file in it",
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

// Usage errors are reported before the program waits for packets.
func TestExplainMisused(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_lo=127.0.0.1")
	file := captures + "rc_pingpong.pcap"
	for line, want := range map[string]string{
		"":                                  "must be given one capture",
		"live":                              "no device: name one with -i",
		"-i vrb_low live":                   `no device "vrb_low"; there are vrb_lo`,
		"-i vrb_lo -c -1 live":              "count -1: must be at least 0",
		"-i vrb_lo --svg /no/such/x live":   "no such file or directory",
		"-i vrb_lo " + file:                 "-i and -c are for live; " + file + " is a file",
		"-c 5 " + file:                      "-i and -c are for live",
		"--svg /no/such/folder/x " + file:   "no such file or directory",
		"--svg " + t.TempDir() + " " + file: "is a directory",
	} {
		if status, _, stderr := explain(strings.Fields(line)...); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d %q, want %q", line, status, stderr, want)
		}
	}
}

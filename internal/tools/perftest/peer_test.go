package perftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// golden is the destination for which perftest 6.06 writes goldenText.
var golden = dest{
	outReads: 16, qpn: 0x11, psn: 0xabcdef, rkey: 0x1234, vaddr: 0x7f0011223344,
	gid: verbs.GID{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 77, 15: 2},
}

const goldenText = "0000:0010:000011:abcdef:00001234:00007f0011223344:" +
	"00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:4d:02:00000000:\x00"

func TestDestText(t *testing.T) {
	if got := string(golden.text()); got != goldenText || len(got) != destTextLen {
		t.Errorf("%d bytes %q", len(got), got)
	}
	if got, err := parseDest([]byte(goldenText)); err != nil || got != golden {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "GET / HTTP/1.1", strings.Replace(goldenText, "ff", "fx", 1),
		strings.Replace(goldenText, "000011", "ffffffff", 1)} {
		if d, err := parseDest([]byte(bad)); err == nil {
			t.Errorf("%q was accepted: %+v", bad, d)
		}
	}
}

func TestDestBinary(t *testing.T) {
	b := golden.binary()
	if len(b) != destLen || b[11] != 0x11 || b[27] != 0 || b[31] != 0x44 || b[47] != 2 {
		t.Errorf("%x", b)
	}
	var d dest
	if err := d.fromBinary(b); err != nil || d != golden {
		t.Errorf("%+v", d)
	}
}

// Peers of another version and peers that are not perftest are detected.
func TestGreet(t *testing.T) {
	for _, c := range []struct{ says, warning, err string }{
		{"6.06", "", ""},
		{"6.20", "perftest 6.20", ""},
		{"5.10", "", "at least 5.70"},
		{"HTTP/1.1 400 Bad", "", "not a perftest program"},
	} {
		a, b := net.Pipe()
		go func() {
			defer b.Close()
			p := peer{channel: newTCP(t.Context(), b)}
			if _, err := p.recv(versionLen); err != nil {
				return
			}
			said := make([]byte, versionLen)
			copy(said, c.says)
			if p.send(said) != nil {
				return
			}
			for range 2 {
				if x, err := p.recv(4); err != nil || p.send(x) != nil {
					return
				}
			}
		}()
		p := peer{channel: newTCP(t.Context(), a), client: true}
		warning, err := p.greet()
		if text := errText(err); !strings.Contains(text, c.err) || (text == "") != (c.err == "") {
			t.Errorf("%s: %v", c.says, err)
		}
		if !strings.Contains(warning, c.warning) || (warning == "") != (c.warning == "") {
			t.Errorf("%s: warning %q", c.says, warning)
		}
		a.Close()
	}
}

// The wait for a silent peer is bounded. Ctrl-C ends the wait as well.
// The exchange of rdma_cm has IPv4 addresses, as that of the C program.
func TestManagedServerIsIPv4(t *testing.T) {
	r := &run{options: &options{server: "fd00::1"}, stop: t.Context()}
	_, err := r.cmDial(rdmacm.PSTCP, nil, nil)
	if err == nil || !strings.HasSuffix(err.Error(), "must have an IPv4 address") {
		t.Errorf("%v", err)
	}
}

func TestPeerMute(t *testing.T) {
	for _, says := range []string{"", "6.0"} {
		a, b := net.Pipe()
		defer b.Close()
		go func() { b.Read(make([]byte, versionLen)); b.Write([]byte(says)) }()
		ch := newTCP(t.Context(), a)
		ch.allow(50 * time.Millisecond)
		p := peer{channel: ch, client: true}
		if _, err := p.greet(); !errors.Is(err, os.ErrDeadlineExceeded) ||
			!strings.Contains(err.Error(), "no message from the peer for 50ms") {
			t.Errorf("%q: %v", says, err)
		}
		a.Close()
	}
	a, b := net.Pipe()
	defer b.Close()
	stop, cancel := context.WithCancel(t.Context())
	r := &run{stop: stop, peer: &peer{channel: newTCP(stop, a)}}
	cancel()
	r.hangUp()
	_, err := r.peer.greet()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	var reason error = syscall.EINTR
	r.stop = t.Context()
	if got := r.because(err); got != err {
		t.Errorf("before Ctrl-C: %v", got)
	}
	interrupted, interrupt := context.WithCancelCause(t.Context())
	r.stop = interrupted
	interrupt(reason)
	if got := r.because(err); got != reason || r.because(nil) != nil {
		t.Errorf("after Ctrl-C: %v", got)
	}
}

// A failure that follows from different options at the two ends says so.
func TestDifferentEnds(t *testing.T) {
	r := &run{stop: t.Context()}
	const hint = "both ends must run the same program with the same options"
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&verbs.WCError{Status: verbs.WCRemInvReqErr}, true},
		{&verbs.WCError{Status: verbs.WCWRFlushErr, First: &verbs.WCError{Status: verbs.WCLocLenErr}}, true},
		{fmt.Errorf("after 0 of 1: %w", &verbs.WCError{Status: verbs.WCRemAccessErr}), true},
		{&verbs.WCError{Status: verbs.WCRetryExcErr}, false},
		{syscall.EPIPE, false},
	} {
		if got := r.because(c.err); strings.Contains(got.Error(), hint) != c.want || !errors.Is(got, c.err) {
			t.Errorf("%v", got)
		}
	}
}

// A wait for a message of the test fails when the peer has ended, but only after the time that messages in
// flight may need. Messages that the peer sent before are not lost.
func TestPeerEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		r := &run{stop: t.Context(), peer: &peer{channel: newTCP(t.Context(), a)}}
		w := r.newWaiter("a completion")
		step := func(d time.Duration) error { time.Sleep(d); return w.checkPeer() }
		if err := step(farewell - time.Millisecond); err != nil {
			t.Errorf("at once: %v", err)
		}
		if err := step(longest - 2*farewell); err != nil {
			t.Errorf("with a connected peer: %v", err)
		}
		go b.Write([]byte("xy"))
		if err := step(2 * time.Second); err != nil {
			t.Errorf("with a peer that is ready: %v", err)
		}
		if got, err := r.peer.recv(2); err != nil || string(got) != "xy" {
			t.Errorf("%q, %v", got, err)
		}
		if err := w.progress(); err != nil {
			t.Error(err)
		}
		if err := w.checkPeer(); err != nil { // the wait begins again
			t.Error(err)
		}
		b.Close()
		if err := step(farewell - time.Millisecond); err != nil {
			t.Errorf("right after its end: %v", err)
		}
		if err := step(2 * time.Millisecond); err == nil ||
			!strings.Contains(err.Error(), "a completion is missing, and the peer has ended") {
			t.Errorf("%v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		r := &run{stop: t.Context(), peer: &peer{channel: newTCP(t.Context(), a)}}
		w := r.newWaiter("a completion")
		time.Sleep(longest + time.Second)
		if err := w.checkPeer(); err == nil || !strings.Contains(err.Error(), "is missing for 1m0s") {
			t.Errorf("%v", err)
		}
	})
}

// A closed connection is not mistaken for an answer.
func TestPeerGone(t *testing.T) {
	a, b := net.Pipe()
	go func() { b.Read(make([]byte, destTextLen)); b.Close() }()
	p := peer{channel: newTCP(t.Context(), a), client: true}
	if _, err := p.shake(&golden); err == nil || !strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("%v", err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The results for known times.
func TestLatReport(t *testing.T) {
	l := &rally{run: &run{options: &options{test: &test{verb: send, lat: true}, iters: 8}}}
	for _, at := range []int{0, 2, 6, 8, 18, 20, 30, 130} { // microseconds
		l.times = append(l.times, usec(at))
	}
	// Half of 2, 4, 2, 10, 2, 10, 100, sorted: 1 1 1 2 5 5 50. The C program excludes two.
	r := l.report(64)
	if r.least != 1 || r.typical != 1 || r.average != 2 || r.most != 5 || r.size != 64 {
		t.Errorf("%+v", r)
	}
}

func TestBWReport(t *testing.T) {
	s := &stream{run: &run{options: &options{test: &test{}, iters: 4, numQP: 1}}, size: 1 << 20}
	for i := range 4 {
		s.postTimes = append(s.postTimes, usec(100*i))
		s.doneTimes = append(s.doneTimes, usec(1000+250*i))
	}
	r := s.report()
	s.noPeak = true
	if without := s.report(); without.peak != 0 || without.average != r.average {
		t.Errorf("with -N: %+v", without)
	}
	if r.iters != 4 || int(r.average) != 2285 || r.peak < r.average {
		t.Errorf("%+v", r)
	}
	s.duration, s.margin, s.sampled, s.gbits = 4, 1, 2000, true
	if r := s.report(); r.iters != 2000 || int(r.average*1000) != 8388 || r.peak != 0 {
		t.Errorf("%+v", r)
	}
}

// The C program chooses the number of digits of the sum by its own share.
func TestBWLines(t *testing.T) {
	for _, c := range []struct {
		gbits       bool
		own, theirs float64
		want        string
	}{
		{true, 0.0900001, 0.11, " 64      5           0.250000            0.200000            0.000300\n"},
		{true, 0.11, 0.09, " 64      5             0.25               0.20   \t\t   0.000300\n"},
		{true, 0.06, 0, " 64      5           0.050000            0.060000            0.000100\n"},
		{false, 0.06, 0.02, " 64      5             0.25               0.08   \t\t   0.000300\n"},
	} {
		var out bytes.Buffer
		r := &run{options: &options{test: &test{}, gbits: c.gbits}, env: &tool.Env{Stdout: &out}}
		var theirs *bwReport
		if c.theirs > 0 {
			theirs = &bwReport{peak: 0.2, average: c.theirs, rate: 0.0002}
		}
		r.addBW(bwReport{size: 64, iters: 5, peak: 0.05, average: c.own, rate: 0.0001}, theirs)
		if strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(c.want), " ") {
			t.Errorf("%+v: %q", c, out.String())
		}
		if sum := r.results[0].bw.average; math.Abs(sum-c.own-c.theirs) > 1e-9 {
			t.Errorf("%+v: the result kept is %v", c, sum)
		}
	}
}

func TestHex(t *testing.T) {
	for v, want := range map[uint64]string{0: "0000", 0x10: "0x10", 0x12345: "0x12345"} {
		if got := hex(v, 4); got != want {
			t.Errorf("%#x: %s", v, got)
		}
	}
}

func usec(n int) time.Duration { return time.Duration(n) * time.Microsecond }

// Ctrl-C ends a run in which messages arrive without a pause, so that it never waits.
func TestBusyRunStops(t *testing.T) {
	stop, interrupt := context.WithCancel(t.Context())
	w := (&run{stop: stop}).newWaiter("a completion")
	for range 1000 {
		if err := w.progress(); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	for range 1000 {
		if w.progress() != nil {
			return
		}
	}
	t.Error("the run continues")
}

// A completion that comes between the last poll and the request for an event raises none. It must not cost a second.
func TestSleepMissesNoCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := func(err error) {
			if t.Helper(); err != nil {
				t.Fatal(err)
			}
		}
		dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("d", netip.MustParseAddr("198.18.0.1"))
		fatal(err)
		vctx, err := dev.Open()
		fatal(err)
		pd, err := vctx.AllocPD()
		fatal(err)
		ch, err := vctx.CreateCompChannel()
		fatal(err)
		cq, err := vctx.CreateCQ(1, &verbs.CQOptions{Channel: ch})
		fatal(err)
		qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 1}})
		fatal(err)
		own, err := qp.LocalInfo()
		fatal(err)
		fatal(qp.Connect(own, nil)) // to itself
		fatal(qp.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
		time.Sleep(time.Second) // the completion is in the CQ

		r := &run{stop: t.Context(), table: table{sendCQ: cq, channel: ch}}
		w, begun := r.newWaiter("a completion"), time.Now()
		for n := 0; n == 0; {
			fatal(w.sleep(true, false))
			var wcs [1]verbs.WC
			n, err = cq.Poll(wcs[:])
			fatal(errors.Join(err, wcs[0].Err()))
		}
		if d := time.Since(begun); d > 0 {
			t.Errorf("the completion that was there took %v", d)
		}
		if r.soonAgain != nil {
			r.soonAgain()
		}
		for _, o := range []interface{ Close() error }{qp, cq, ch, pd, vctx} {
			fatal(o.Close())
		}
	})
}

// listening returns a fabric with two hosts, of which the second one listens at 198.18.0.2:7471.
func listening(t *testing.T) (f *rdmatest.Fabric, here, there *rdmacm.Host, l *rdmacm.Listener) {
	t.Helper()
	f = rdmatest.New(rdmatest.Config{RealTime: true})
	host := func(name string) *rdmacm.Host {
		dev, err := f.NewDevice(name)
		if err != nil {
			t.Fatal(err)
		}
		return rdmacm.NewHost(dev)
	}
	here, there = host("a"), host("b")
	l, err := rdmacm.Listen(t.Context(), "198.18.0.2:7471", &rdmacm.Options{Host: there})
	if err != nil {
		t.Fatal(err)
	}
	return f, here, there, l
}

// After Ctrl-C the program does not wait for a busy peer's answer to its disconnect request.
func TestStoppedRunDoesNotWaitForPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, here, there, l := listening(t)
		accepted := make(chan *rdmacm.ID)
		go func() { id, _ := l.Accept(t.Context()); accepted <- id }()
		id, err := rdmacm.Dial(t.Context(), "198.18.0.2:7471", &rdmacm.Options{Host: here})
		if err != nil {
			t.Fatal(err)
		}
		peer := <-accepted // does not answer
		stop, interrupt := context.WithCancel(t.Context())
		r := &run{stop: stop, options: &options{typ: verbs.QPTypeRC}}
		r.keep(&end{id: id})
		interrupt()
		begun := time.Now()
		if err := r.table.close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if err := errors.Join(peer.Close(), l.Close(), here.Close(), there.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
}

// With -R, too, an end that waits for the end of the peer's test notices that the peer's process has been killed.
func TestKilledPeerOfConnectionManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, here, there, l := listening(t)
		c, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		served := make(chan error)
		var ch *cmChannel
		go func() {
			id, err := l.Request(c)
			if err == nil {
				ch, err = newCMChannel(c, id)
			}
			served <- errors.Join(err, id.Accept(c, nil))
		}()
		id, err := rdmacm.Dial(c, "198.18.0.2:7471", &rdmacm.Options{Host: here})
		if err := errors.Join(err, <-served); err != nil {
			t.Fatal(err)
		}
		f.Cut(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2"))
		begun := time.Now()
		if _, err := ch.recv(4); !strings.Contains(errText(err), "keep-alive") || time.Since(begun) > longest {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := errors.Join(ch.in.Close(), ch.out.Close(), ch.id.Close(), id.Close(), l.Close(), here.Close(),
			there.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
}

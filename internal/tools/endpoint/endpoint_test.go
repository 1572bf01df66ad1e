package endpoint

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == duo.Command {
		if duo.Serve(&Second{}) != nil {
			os.Exit(1)
		}
		return
	}
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each child process sleeps 1 s when it ends
	}
	os.Exit(m.Run())
}

func connected(t testing.TB, o Options) *Pair {
	t.Helper()
	p, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.Connect(o); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFillAndCheck(t *testing.T) {
	a, b := make([]byte, 1001), make([]byte, 1001)
	Fill(a, 1)
	if err := Check(a, 1); err != nil {
		t.Error(err)
	}
	if err := Check(a, 2); err == nil {
		t.Error("another seed passes")
	}
	for i := range a {
		copy(b, a)
		b[i] ^= 0x40
		if err := Check(b, 1); err == nil {
			t.Errorf("a wrong byte %d passes", i)
		}
	}
	if err := Check(a[:1000], 1); err != nil {
		t.Errorf("a shorter part: %v", err)
	}
}

func TestTwoProcesses(t *testing.T) {
	const n = 4096
	p := connected(t, Options{QPs: 3, Depth: 8, Bytes: 2 * n})
	Fill(p.End.Buf[:n], 5)
	if _, err := p.Do(p.Remote(verbs.WRRDMAWrite, 0, n, n)); err != nil {
		t.Fatal(err)
	}
	if err := p.Call("Check", Region{Off: n, Len: n, Seed: 5}, &None{}); err != nil {
		t.Error(err)
	}
	if err := p.Call("Check", Region{Off: 0, Len: n, Seed: 5}, &None{}); err == nil {
		t.Error("memory that was not written passes")
	}
	if err := p.Call("Same", Match{Off: n, Want: p.End.Buf[1:9]}, &None{}); err == nil {
		t.Error("other bytes pass")
	}
	const each = 5 * time.Millisecond
	send := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.End.MR.SGE(0, 8)}}
	for name, measure := range map[string]func() (float64, error){
		"pump":    func() (float64, error) { return p.Pump(each, 8, send) },
		"batches": func() (float64, error) { return p.PumpBatches(each, 8, send) },
		"latency": func() (float64, error) {
			d, err := p.Latency(each, send)
			return d.Seconds(), err
		},
	} {
		var v float64
		err := p.Serving(Serving{Mode: Sink, Bytes: 8}, func() (err error) {
			v, err = measure()
			return err
		})
		if err != nil || v <= 0 {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	var d time.Duration
	err := p.Serving(Serving{Mode: Pong, Bytes: 8}, func() (err error) {
		d, err = p.PingPong(each, 8)
		return err
	})
	if err != nil || d <= 0 {
		t.Errorf("ping-pong: %v, %v", d, err)
	}
}

// Serve consumes the messages that arrive before Stop. The next Serve does not answer them: the first
// process has no receives for such answers.
func TestServeLeavesNothing(t *testing.T) {
	const messages = 4
	p := connected(t, Options{QPs: 1, Depth: 8, Bytes: 4096})
	sink, none := Serving{Mode: Sink, Bytes: 8}, &None{}
	if err := p.Call("Prepare", sink, none); err != nil {
		t.Fatal(err)
	}
	for range messages { // the other end does not poll yet
		if _, err := p.Do(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{p.End.MR.SGE(0, 8)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Call("Stop", None{}, none), p.Call("Serve", sink, none)); err != nil {
		t.Fatal(err)
	}
	err := p.Serving(Serving{Mode: Pong, Bytes: 8}, func() error {
		_, err := p.PingPong(5*time.Millisecond, 8)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFailedRequestIsAnError(t *testing.T) {
	p := connected(t, Options{QPs: 1, Depth: 8, Bytes: 4096})
	wr := p.Remote(verbs.WRRDMAWrite, 0, 0, 8)
	wr.RKey++
	if _, err := p.Do(wr); err == nil {
		t.Error("a WRITE with a wrong key passes")
	}
}

func TestRSS(t *testing.T) {
	if n, err := RSS(); err != nil || n < 1<<20 || n > 1<<40 {
		t.Errorf("%d, %v", n, err)
	}
}

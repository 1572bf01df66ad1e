package control

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// A replay is a program whose captures end with their connection.
type replay struct{}

func (replay) Report(objects bool) Report {
	r := Report{PID: os.Getpid(), Comm: "test", Devices: []Device{{Name: "vrb_x"}}}
	if objects {
		r.Devices[0].Objects = &Objects{}
	}
	return r
}

func (replay) Counters(device string) []Counter { return []Counter{{device, 1}} }

func (replay) Capture(_ net.Conn, r *bufio.Reader, _, _ string) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		_, _ = SnapOf(line)
	}
}

// longTimeouts makes time-outs so long that none expires in a fuzzer of low priority on a busy machine.
func longTimeouts(f *testing.F) {
	was := testTimeout.Swap(int64(20 * time.Second))
	f.Cleanup(func() { testTimeout.Store(was) })
}

// FuzzServer has several clients follow a script, in any order: connect, write, stop writing, read, close. The server
// answers the next client in any case.
func FuzzServer(f *testing.F) {
	longTimeouts(f)
	s, err := Serve(replay{})
	if err != nil {
		f.Skip(err)
	}
	f.Cleanup(s.Close)
	f.Add([]byte("c0w\x07report\nr0h0"))
	f.Add([]byte("c0c1w\x0fcapture vrb_x\n0w\x08snap 128\ns0c2c3h1w\x08objects\n2r2r3"))
	f.Add([]byte("c0w\x0fcounters vrb_x\nr0h0"))
	f.Add([]byte("c0w\x02\n\n0c1w\x00c2h2s1r1"))
	f.Fuzz(func(t *testing.T, script []byte) {
		var conns [4]net.Conn
		next := func() (b byte) {
			if len(script) > 0 {
				b, script = script[0], script[1:]
			}
			return b
		}
		for n := 0; len(script) > 0 && n < 50; n++ {
			switch op := next(); op {
			case 'c':
				i := next() % 4
				if conns[i] == nil {
					if conns[i], err = net.Dial("unix", s.Name); err != nil {
						t.Fatal(err)
					}
				}
			case 'w':
				k := min(int(next()), len(script))
				text := script[:k]
				script = script[k:]
				if c := conns[next()%4]; c != nil {
					_ = c.SetDeadline(time.Now().Add(time.Second))
					_, _ = c.Write(text)
				}
			case 's':
				if c := conns[next()%4]; c != nil {
					_ = c.(*net.UnixConn).CloseWrite()
				}
			case 'r':
				if c := conns[next()%4]; c != nil {
					_ = c.SetDeadline(time.Now().Add(time.Millisecond))
					_, _ = io.CopyN(io.Discard, c, 100)
				}
			case 'h':
				i := next() % 4
				if conns[i] != nil {
					_ = conns[i].Close()
					conns[i] = nil
				}
			}
		}
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		if r, err := report(s.Name, AskReport, new(budgets)); err != nil || r.Comm != "test" {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

// FuzzAnswer is a hostile program that answers a tool, and one that calls a capture.
func FuzzAnswer(f *testing.F) {
	longTimeouts(f)
	name := Name(os.Geteuid(), os.Getpid()) + ".hostile"
	l, err := net.Listen("unix", name)
	if err != nil {
		f.Skip(err)
	}
	f.Cleanup(func() { l.Close() })
	answer := make(chan []byte)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write(<-answer)
			_ = c.Close()
		}
	}()
	f.Add([]byte(`{"pid":1,"comm":"x","devices":[{"name":"a","qps":[{"num":1}],"objects":{"srqs":[{"qps":[1,2]}]}}]}` +
		"\n"))
	f.Add([]byte(`[[[[[[[[`))
	f.Add([]byte("vrb_a vrb_b\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		go func() { answer <- b }()
		if r, err := report(name, AskObjects, new(budgets)); err == nil && r.PID != os.Getpid() {
			t.Fatalf("a process claims to be %d", r.PID)
		}
		here, there := pair(t)
		defer there.Close()
		_, _ = there.Write(b)
		_ = there.CloseWrite()
		if call := introduced(here); call != nil {
			_, _ = io.CopyN(io.Discard, call, 1<<16)
		}
		_ = here.Close()
	})
}

// pair connects two unix sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", Name(os.Geteuid(), os.Getpid())+".pair")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn), d.(*net.UnixConn)
}

// TestBudgetOfOtherUsers checks that the processes of another user cannot fill the memory of root's tools, whatever
// their number.
func TestBudgetOfOtherUsers(t *testing.T) {
	var b budgets
	others, own := Name(os.Geteuid()+1, 1), Name(os.Geteuid(), 1)
	zeros := func() io.Reader { return io.LimitReader(endless{}, mostOfOthers-1000) }
	if n, err := io.Copy(io.Discard, b.of(zeros(), others)); n != mostOfOthers-1000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := io.Copy(io.Discard, b.of(zeros(), others)); n > 1000 || err != errTooMuch {
		t.Errorf("the second one: %d, %v", n, err)
	}
	for _, name := range []string{own, own, Name(os.Geteuid()+2, 1)} {
		if _, err := io.Copy(io.Discard, b.of(zeros(), name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBudgetOfValues checks that short texts of values, which take much more memory, are bounded: 1<<20 QPs of 200
// bytes.
func TestBudgetOfValues(t *testing.T) {
	var b budgets
	zeros := strings.NewReader(`{"devices":[{"name":"a","qps":[` + strings.Repeat("0,", 4<<20))
	const most = 2<<20 + 1000
	if n, err := io.Copy(io.Discard, b.of(zeros, Name(os.Geteuid()+1, 1))); n > most || err != errTooMuch {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

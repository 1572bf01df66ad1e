package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

var addr = loopback.Addr(1)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_files="+addr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// testNet is a server and a client's host on a network in memory, in virtual time.
type testNet struct {
	*testing.T
	fabric  *rdmatest.Fabric
	client  *rdmacm.Host
	address string
	dir     string
	log     []string // of the server; read it after stop
	stop    func()   // ends the server and waits for it
}

// run calls f with a running server, and afterwards closes everything.
func run(t *testing.T, faults rdmatest.Faults, f func(w *testNet)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &testNet{T: t, dir: dir, fabric: rdmatest.New(rdmatest.Config{RealTime: true, Seed: 1, Faults: faults})}
		w.client = w.host("client")
		host := w.host("server")
		ctx, cancel := context.WithCancel(t.Context())
		ready, done := make(chan string, 1), make(chan error, 1)
		s := server{
			host: host, dir: dir,
			log: func(text string) { w.log = append(w.log, text) }, ready: func(a string) { ready <- a },
		}
		go func() { done <- s.run(ctx, "198.18.0.2:0") }()
		w.address = <-ready
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		f(w)
		w.stop()
		w.ok(w.client.Close())
		w.ok(host.Close())
		w.ok(w.fabric.Close())
	})
}

func (w *testNet) host(name string) *rdmacm.Host {
	dev, err := w.fabric.NewDevice(name)
	w.ok(err)
	return rdmacm.NewHost(dev)
}

func (w *testNet) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *testNet) connect() *client {
	w.Helper()
	c, err := connect(w.Context(), w.client, w.address)
	w.ok(err)
	return c
}

// wantFiles checks the content of the server's folder.
func (w *testNet) wantFiles(want ...string) {
	w.Helper()
	list, err := os.ReadDir(w.dir)
	w.ok(err)
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		w.Errorf("the server's folder has %q, want %q", got, want)
	}
}

// wantLog checks that the server's log has a text. Call it after stop.
func (w *testNet) wantLog(part string) {
	w.Helper()
	if all := strings.Join(w.log, "\n"); !strings.Contains(all, part) {
		w.Errorf("the server's log does not have %q:\n%s", part, all)
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// files have sizes around the limits of slots and ring. The tests send them in this order.
var files = []struct {
	name string
	size int
}{
	{"empty", 0}, {"one", 1}, {"slot", slotSize}, {"slot-and-one", slotSize + 1}, {"three-rings", 3*slots*slotSize - 7},
	{"zz-one", 1},
}

func TestFilesArrive(t *testing.T) {
	for name, faults := range map[string]rdmatest.Faults{
		"perfect": {},
		"lossy":   {Loss: 0.02},
		"everything": {
			Loss: 0.01, Duplicate: 0.01, Reorder: 0.01, Corrupt: 0.01,
			Delay: 50 * time.Microsecond, Jitter: 20 * time.Microsecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, faults, func(w *testNet) {
				c := w.connect()
				var names []string
				for _, f := range files {
					w.ok(c.send(w.Context(), f.name, int64(f.size), bytes.NewReader(content(f.size))))
					got, err := os.ReadFile(filepath.Join(w.dir, f.name))
					w.ok(err)
					if !bytes.Equal(got, content(f.size)) {
						w.Errorf("%s: the %d bytes received differ from the %d sent", f.name, len(got), f.size)
					}
					names = append(names, f.name)
				}
				w.ok(c.disconnect(w.Context()))
				c.close()
				w.stop()
				w.wantFiles(names...)
				if len(w.log) != len(files) {
					w.Errorf("the server's log has %d lines, want one for each file: %q", len(w.log), w.log)
				}
				if damaged := w.fabric.Stats().Lost + w.fabric.Stats().Corrupted; (damaged > 0) != (faults.Loss > 0) {
					w.Errorf("%d packets lost or damaged with %+v", damaged, faults)
				}
			})
		})
	}
}

// The credits keep the client from writing into a slot that the server still reads, and when the receive queue is
// empty.
func TestCreditsPreventRNR(t *testing.T) {
	run(t, rdmatest.Faults{}, func(w *testNet) {
		c := w.connect()
		w.ok(c.send(w.Context(), "f", 5*slots*slotSize, rand.NewChaCha8([32]byte{})))
		w.ok(c.disconnect(w.Context()))
		if n := w.fabric.Counters(c.id.Verbs())["rcvd_rnr_err"]; n != 0 {
			w.Errorf("%d RNR NAKs, want 0", n)
		}
		c.close()
	})
}

// A hook is a reader that calls do once, when left bytes have been read.
type hook struct {
	left int
	do   func()
}

func (h *hook) Read(b []byte) (int, error) {
	if h.left -= len(b); h.left <= 0 && h.do != nil {
		h.do()
		h.do = nil
	}
	return len(b), nil
}

const big = 64 * slots * slotSize

// The network fails: the client's WRITEs and the server's probe get no answer.
func TestNetworkFailure(t *testing.T) {
	run(t, rdmatest.Faults{}, func(w *testNet) {
		c := w.connect()
		cut := func() { w.fabric.Cut(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")) }
		err := c.send(w.Context(), "f", big, &hook{big / 2, cut})
		if err == nil || !strings.Contains(err.Error(), verbs.WCRetryExcErr.String()) {
			t.Errorf("the client's error: %v", err)
		}
		c.close()
		time.Sleep(2 * time.Minute)
		w.wantFiles()
		w.stop()
		w.wantLog(`"f": ended after `)
		w.wantLog("the client does not answer")
	})
}

func TestClientCloses(t *testing.T) {
	run(t, rdmatest.Faults{}, func(w *testNet) {
		c := w.connect()
		ctx, cancel := context.WithCancel(w.Context())
		if err := c.send(ctx, "f", big, &hook{big / 2, cancel}); !errors.Is(err, context.Canceled) {
			t.Errorf("the client's error: %v", err)
		}
		c.close()
		time.Sleep(time.Second)
		w.wantFiles()
		w.stop()
		w.wantLog("the peer has disconnected")
	})
}

func TestServerStops(t *testing.T) {
	run(t, rdmatest.Faults{}, func(w *testNet) {
		c := w.connect()
		err := c.send(w.Context(), "f", big, &hook{big / 2, w.stop})
		if err == nil || !strings.Contains(err.Error(), "the server closed the connection") {
			t.Errorf("the client's error: %v", err)
		}
		c.close()
		w.wantFiles()
		w.wantLog("the server was stopped")
	})
}

// A client that sends nothing for an hour keeps its connection.
func TestLongPause(t *testing.T) {
	run(t, rdmatest.Faults{}, func(w *testNet) {
		c := w.connect()
		pause := func() { time.Sleep(time.Hour) }
		w.ok(c.send(w.Context(), "f", 3*slots*slotSize, &hook{slots * slotSize, pause}))
		time.Sleep(time.Hour)
		w.ok(c.send(w.Context(), "g", 0, nil))
		w.ok(c.disconnect(w.Context()))
		c.close()
		w.stop()
		w.wantFiles("f", "g")
	})
}

func TestRefusals(t *testing.T) {
	sum := sha256.Sum256([]byte("abc"))
	begin := func(name string, size int64) []byte {
		b := make([]byte, 8+maxName+1)
		return b[:encodeBegin(b, name, size)]
	}
	type piece struct {
		kind uint32
		data []byte
	}
	for _, test := range []struct {
		want   string
		pieces []piece
	}{
		{`"f": checksum `, []piece{{pieceBegin, begin("f", 3)}, {pieceData, []byte("abd")}, {pieceEnd, sum[:]}}},
		{`"f": received 2 of 3 bytes`, []piece{{pieceBegin, begin("f", 3)}, {pieceData, []byte("ab")}, {pieceEnd, sum[:]}}},
		{`"f": more data than the announced 2 bytes`, []piece{{pieceBegin, begin("f", 2)}, {pieceData, []byte("abc")}}},
		{`"f": size -1`, []piece{{pieceBegin, begin("f", -1)}}},
		{"has 8 bytes", []piece{{pieceBegin, begin("", 0)}}},
		{"has 264 bytes", []piece{{pieceBegin, begin(strings.Repeat("x", maxName+1), 0)}}},
		{`"../f" is not a file name`, []piece{{pieceBegin, begin("../f", 0)}}},
		{`"a/f" is not a file name`, []piece{{pieceBegin, begin("a/f", 0)}}},
		{`".." is not a file name`, []piece{{pieceBegin, begin("..", 0)}}},
		{"unexpected piece of kind 2", []piece{{pieceData, nil}}},
		{"unexpected piece of kind 3", []piece{{pieceEnd, nil}}},
		{"unexpected piece of kind 1", []piece{{pieceBegin, begin("f", 2)}, {pieceBegin, begin("f", 2)}}},
		{"unexpected piece of kind 99", []piece{{99, nil}}},
	} {
		t.Run(test.want, func(t *testing.T) {
			run(t, rdmatest.Faults{}, func(w *testNet) {
				c := w.connect()
				for _, p := range test.pieces {
					w.ok(c.put(w.Context(), p.kind, func(slot []byte) (int, error) { return copy(slot, p.data), nil }))
				}
				_, err := c.await(w.Context())
				if want := strconv.Quote(test.want); err == nil || !strings.Contains(err.Error(),
					"the server refused the file: ") ||
					!strings.Contains(err.Error(), want[1:len(want)-1]) {
					t.Errorf("the client's error: %v", err)
				}
				w.ok(c.disconnect(w.Context()))
				c.close()
				w.stop()
				w.wantFiles()
				w.wantLog(test.want)
			})
		})
	}
}

// Messages with invalid fields are refused.
func TestBadMessages(t *testing.T) {
	good := ring{Slots: 2, SlotSize: minSlotSize, RKey: 3, Addr: 4}
	if r, err := decodeRing(append(good.encode(), make([]byte, 100)...)); err != nil || r.Addr != 4 || r.RKey != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	for name, b := range map[string][]byte{
		"nothing":   nil,
		"zeros":     make([]byte, 196),
		"one slot":  ring{Slots: 1, SlotSize: 4096}.encode(),
		"many":      ring{Slots: maxSlots + 1, SlotSize: 4096}.encode(),
		"too small": ring{Slots: 2, SlotSize: minSlotSize - 1}.encode(),
		"too large": ring{Slots: 2, SlotSize: maxSlotSize + 1}.encode(),
	} {
		if r, err := decodeRing(b); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, err := decodeAnswer(make([]byte, 4)); err == nil {
		t.Error("an answer of 4 bytes")
	}
	if long := (answer{reason: strings.Repeat("x", 500)}).encode(); len(long) != answerSize {
		t.Errorf("a long reason makes a message of %d bytes, want %d", len(long), answerSize)
	}
}

func TestBadFiles(t *testing.T) {
	run(t, rdmatest.Faults{}, func(w *testNet) {
		c := w.connect()
		defer c.close()
		if _, err := c.sendFile(w.Context(), t.Name()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that does not exist: %v", err)
		}
		if _, err := c.sendFile(w.Context(), t.TempDir()); err == nil ||
			!strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a folder: %v", err)
		}
		err := c.send(w.Context(), "f", 10, io.LimitReader(&hook{}, 3))
		if err == nil || !strings.Contains(err.Error(), "7 of its 10 bytes are missing") {
			t.Errorf("a file that becomes shorter: %v", err)
		}
	})
}

// Both programs run in this process, over the loopback device.
func TestPrograms(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, content(10*slotSize), 0o600); err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	ready, done := make(chan string, 1), make(chan error, 1)
	s := server{dir: dir, log: func(string) {}, ready: func(a string) { ready <- a }}
	go func() { done <- s.run(serving, addr+":0") }()
	select {
	case address := <-ready:
		if err := sendFiles(ctx, address, []string{path}); err != nil {
			t.Error(err)
		}
	case err := <-done:
		t.Fatal(err)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "f")); !bytes.Equal(got, content(10*slotSize)) {
		t.Error("the stored file differs from the one that was sent", err)
	}
	if err := receiveFiles(ctx, addr+":0", path); err == nil {
		t.Error("a file instead of a folder: no error")
	}
}

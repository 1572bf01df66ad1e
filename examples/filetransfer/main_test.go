package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestMain(m *testing.M) {
	// An address of its own, so that other programs on this machine do not matter.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_files=127.4.6.1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A world is a server and a client's host on a network in memory, in virtual time.
type world struct {
	*testing.T
	fabric  *rdmatest.Fabric
	client  *rdmacm.Host
	address string
	dir     string
	said    []string // by the server; for who has called stop
	stop    func()   // ends the server and waits for it
}

func in(t *testing.T, faults rdmatest.Faults, f func(w *world)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, dir: dir, fabric: rdmatest.New(rdmatest.Config{RealTime: true, Seed: 1, Faults: faults})}
		w.client = w.host("client")
		host := w.host("server")
		ctx, cancel := context.WithCancel(t.Context())
		ready, done := make(chan string, 1), make(chan error, 1)
		s := server{host: host, dir: dir, log: func(text string) { w.said = append(w.said, text) }, ready: func(a string) { ready <- a }}
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

func (w *world) host(name string) *rdmacm.Host {
	dev, err := w.fabric.NewDevice(name)
	w.ok(err)
	return rdmacm.NewHost(dev)
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) connect() *client {
	w.Helper()
	c, err := connect(w.Context(), w.client, w.address)
	w.ok(err)
	return c
}

// has tells what is in the server's folder.
func (w *world) has(want ...string) {
	w.Helper()
	list, err := os.ReadDir(w.dir)
	w.ok(err)
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		w.Errorf("the server's folder has %q, not %q", got, want)
	}
}

// heard is for who has called stop.
func (w *world) heard(part string) {
	w.Helper()
	if all := strings.Join(w.said, "\n"); !strings.Contains(all, part) {
		w.Errorf("the server does not say %q but\n%s", part, all)
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// Files of sizes at which something could go wrong, one after the other.
var files = []struct {
	name string
	size int
}{
	{"empty", 0}, {"one", 1}, {"slot", slotSize}, {"slot-and-one", slotSize + 1}, {"thrice-around", 3*slots*slotSize - 7}, {"zz-again", 1},
}

func TestFilesArrive(t *testing.T) {
	for name, faults := range map[string]rdmatest.Faults{
		"perfect":    {},
		"lossy":      {Loss: 0.02},
		"everything": {Loss: 0.01, Duplicate: 0.01, Reorder: 0.01, Corrupt: 0.01, Delay: 50 * time.Microsecond, Jitter: 20 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, faults, func(w *world) {
				c := w.connect()
				var names []string
				for _, f := range files {
					w.ok(c.send(w.Context(), f.name, int64(f.size), bytes.NewReader(content(f.size))))
					got, err := os.ReadFile(filepath.Join(w.dir, f.name))
					w.ok(err)
					if !bytes.Equal(got, content(f.size)) {
						w.Errorf("%s: %d bytes have arrived, and differ from the %d that were sent", f.name, len(got), f.size)
					}
					names = append(names, f.name)
				}
				w.ok(c.disconnect(w.Context()))
				c.close()
				w.stop()
				w.has(names...)
				if len(w.said) != len(files) {
					w.Errorf("the server has more to say than a line for each file: %q", w.said)
				}
				if damaged := w.fabric.Stats().Lost + w.fabric.Stats().Corrupted; (damaged > 0) != (faults.Loss > 0) {
					w.Errorf("%d packets were lost or damaged", damaged)
				}
			})
		})
	}
}

// The credits are what keeps the client from writing where the server still reads, and into a receive queue that is empty.
func TestNothingIsPutOff(t *testing.T) {
	in(t, rdmatest.Faults{}, func(w *world) {
		c := w.connect()
		w.ok(c.send(w.Context(), "f", 5*slots*slotSize, rand.NewChaCha8([32]byte{})))
		w.ok(c.disconnect(w.Context()))
		if n := w.fabric.Counters(c.id.Verbs())["rcvd_rnr_err"]; n != 0 {
			w.Errorf("%d requests of the client found no receive", n)
		}
		c.close()
	})
}

// A hook is a reader that calls a function in the middle of a file.
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

// The network breaks: the client's WRITEs and the server's probe are not answered.
func TestThePeerVanishes(t *testing.T) {
	in(t, rdmatest.Faults{}, func(w *world) {
		c := w.connect()
		cut := func() { w.fabric.Cut(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")) }
		err := c.send(w.Context(), "f", big, &hook{big / 2, cut})
		if err == nil || !strings.Contains(err.Error(), verbs.WCRetryExcErr.String()) {
			t.Errorf("the client says: %v", err)
		}
		c.close()
		time.Sleep(2 * time.Minute)
		w.has()
		w.stop()
		w.heard("f ends after ")
		w.heard("the client does not answer any more")
	})
}

func TestTheClientLeaves(t *testing.T) {
	in(t, rdmatest.Faults{}, func(w *world) {
		c := w.connect()
		ctx, cancel := context.WithCancel(w.Context())
		if err := c.send(ctx, "f", big, &hook{big / 2, cancel}); !errors.Is(err, context.Canceled) {
			t.Errorf("the client says: %v", err)
		}
		c.close()
		time.Sleep(time.Second)
		w.has()
		w.stop()
		w.heard("the peer has disconnected")
	})
}

func TestTheServerStops(t *testing.T) {
	in(t, rdmatest.Faults{}, func(w *world) {
		c := w.connect()
		err := c.send(w.Context(), "f", big, &hook{big / 2, w.stop})
		if err == nil || !strings.Contains(err.Error(), "the server has ended the connection") {
			t.Errorf("the client says: %v", err)
		}
		c.close()
		w.has()
		w.heard("the server is stopped")
	})
}

// A client that is silent but alive is left alone.
func TestALongPause(t *testing.T) {
	in(t, rdmatest.Faults{}, func(w *world) {
		c := w.connect()
		pause := func() { time.Sleep(time.Hour) }
		w.ok(c.send(w.Context(), "f", 3*slots*slotSize, &hook{slots * slotSize, pause}))
		time.Sleep(time.Hour)
		w.ok(c.send(w.Context(), "g", 0, nil))
		w.ok(c.disconnect(w.Context()))
		c.close()
		w.stop()
		w.has("f", "g")
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
		{"the checksum is", []piece{{pieceBegin, begin("f", 3)}, {pieceData, []byte("abd")}, {pieceEnd, sum[:]}}},
		{"f: 2 of 3 bytes have come", []piece{{pieceBegin, begin("f", 3)}, {pieceData, []byte("ab")}, {pieceEnd, sum[:]}}},
		{"f: more than the 2 bytes", []piece{{pieceBegin, begin("f", 2)}, {pieceData, []byte("abc")}}},
		{"f: -1 bytes are not possible", []piece{{pieceBegin, begin("f", -1)}}},
		{"has 8 bytes", []piece{{pieceBegin, begin("", 0)}}},
		{"has 264 bytes", []piece{{pieceBegin, begin(strings.Repeat("x", maxName+1), 0)}}},
		{`"../f" is not the name`, []piece{{pieceBegin, begin("../f", 0)}}},
		{`"a/f" is not the name`, []piece{{pieceBegin, begin("a/f", 0)}}},
		{`".." is not the name`, []piece{{pieceBegin, begin("..", 0)}}},
		{"kind 2 came out of turn", []piece{{pieceData, nil}}},
		{"kind 3 came out of turn", []piece{{pieceEnd, nil}}},
		{"kind 1 came out of turn", []piece{{pieceBegin, begin("f", 2)}, {pieceBegin, begin("f", 2)}}},
		{"kind 99 came out of turn", []piece{{99, nil}}},
	} {
		t.Run(test.want, func(t *testing.T) {
			in(t, rdmatest.Faults{}, func(w *world) {
				c := w.connect()
				for _, p := range test.pieces {
					w.ok(c.put(w.Context(), p.kind, func(slot []byte) (int, error) { return copy(slot, p.data), nil }))
				}
				_, err := c.listen(w.Context())
				if err == nil || !strings.Contains(err.Error(), "the server refuses the file: ") || !strings.Contains(err.Error(), test.want) {
					t.Errorf("the client says: %v", err)
				}
				w.ok(c.disconnect(w.Context()))
				c.close()
				w.stop()
				w.has()
				w.heard(test.want)
			})
		})
	}
}

// What the network says is not believed.
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
		t.Errorf("a long reason makes a message of %d bytes", len(long))
	}
}

func TestBadFiles(t *testing.T) {
	in(t, rdmatest.Faults{}, func(w *world) {
		c := w.connect()
		defer c.close()
		for path, want := range map[string]string{t.Name(): "no such file", t.TempDir(): "not a regular file"} {
			if _, err := c.sendFile(w.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if err := c.send(w.Context(), "f", 10, io.LimitReader(&hook{}, 3)); err == nil || !strings.Contains(err.Error(), "7 of its 10 bytes are missing") {
			t.Errorf("a file that becomes shorter: %v", err)
		}
	})
}

// The two programs, over the loopback device.
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
	go func() { done <- s.run(serving, "127.4.6.1:0") }()
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
		t.Error("the file differs", err)
	}
	if err := receiveFiles(ctx, "127.4.6.1:0", path); err == nil {
		t.Error("a file instead of a folder: no error")
	}
}

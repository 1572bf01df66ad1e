package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/output"
	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// serverMode makes the test binary a server, which tests kill.
const serverMode = "KV_TEST_SERVER"

var addr = loopback.Addr(1)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_kv="+addr); err != nil {
		panic(err)
	}
	if os.Getenv(serverMode) != "" {
		err := runServer(context.Background(), addr+":0", func(a string) { fmt.Println(a) })
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// start starts a server in this process and returns its table and address.
func start(t *testing.T, slots int) (*table, string) {
	t.Helper()
	tab, err := newTable(slots)
	if err != nil {
		t.Fatal(err)
	}
	l, err := rdmacm.Listen(t.Context(), addr+":0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- (&server{table: tab, l: l}).serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, l.Close()); err != nil {
			t.Error(err)
		}
	})
	return tab, l.Addr().String()
}

func connect(t *testing.T, address string) *client {
	t.Helper()
	c, err := dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() })
	return c
}

// Put, get and delete, with and without a condition on the version.
func TestStore(t *testing.T) {
	_, address := start(t, 64)
	c, other, ctx := connect(t, address), connect(t, address), t.Context()
	if _, _, err := c.get(ctx, "a"); !errors.Is(err, errNotFound) {
		t.Errorf("before the put: %v", err)
	}
	if err := c.remove(ctx, "a", anyVersion); !errors.Is(err, errNotFound) {
		t.Errorf("delete before the put: %v", err)
	}
	if _, err := c.put(ctx, "a", []byte("x"), 2); !errors.Is(err, errVersion) {
		t.Errorf("put with the version of a missing key: %v", err)
	}
	first, err := c.put(ctx, "a", []byte("one"), noVersion)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.put(ctx, "a", []byte("two"), noVersion); !errors.Is(err, errVersion) {
		t.Errorf("second put of a new key: %v", err)
	}
	v, version, err := other.get(ctx, "a")
	if err != nil || string(v) != "one" || version != first {
		t.Errorf("%q, version %d of %d, %v", v, version, first, err)
	}
	long := bytes.Repeat([]byte("z"), maxValue)
	second, err := other.put(ctx, "a", long, first)
	if err != nil || second <= first {
		t.Errorf("version %d after %d, %v", second, first, err)
	}
	if v, _, err := c.get(ctx, "a"); err != nil || !bytes.Equal(v, long) {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := c.put(ctx, "a", nil, anyVersion); err != nil {
		t.Errorf("empty value: %v", err)
	}
	if v, _, err := c.get(ctx, "a"); err != nil || len(v) != 0 {
		t.Errorf("empty value: %q, %v", v, err)
	}
	if err := c.remove(ctx, "a", first); !errors.Is(err, errVersion) {
		t.Errorf("delete of an old version: %v", err)
	}
	if err := c.remove(ctx, "a", anyVersion); err != nil {
		t.Error(err)
	}
	if _, _, err := other.get(ctx, "a"); !errors.Is(err, errNotFound) {
		t.Errorf("after the delete: %v", err)
	}
	for _, key := range []string{"", strings.Repeat("k", maxKey+1)} {
		if _, err := c.put(ctx, key, nil, anyVersion); !errors.Is(err, errSize) {
			t.Errorf("put with a key of %d bytes: %v", len(key), err)
		}
		if _, _, err := c.get(ctx, key); !errors.Is(err, errSize) {
			t.Errorf("get with a key of %d bytes: %v", len(key), err)
		}
	}
	if _, err := c.put(ctx, "a", make([]byte, maxValue+1), anyVersion); !errors.Is(err, errSize) {
		t.Errorf("long value: %v", err)
	}
}

// A full table says so, and serves its keys.
func TestFullTable(t *testing.T) {
	_, address := start(t, 1)
	c, ctx := connect(t, address), t.Context()
	for i := range near {
		if _, err := c.put(ctx, fmt.Sprint(i), fmt.Append(nil, i), anyVersion); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.put(ctx, "more", nil, anyVersion); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	for i := range near {
		if v, _, err := c.get(ctx, fmt.Sprint(i)); err != nil || string(v) != fmt.Sprint(i) {
			t.Errorf("%q, %v", v, err)
		}
	}
}

// A get that meets a slot during its write reads again until the write has ended, and returns the new value.
func TestTornReadIsRepeated(t *testing.T) {
	tab, address := start(t, 64)
	c, ctx := connect(t, address), t.Context()
	if _, err := c.put(ctx, "a", []byte("old"), anyVersion); err != nil {
		t.Fatal(err)
	}
	slot := tab.mem[home("a", tab.n)*slotSize:][:slotSize]
	tab.mu.Lock() // this test is the writer
	defer tab.mu.Unlock()
	version := begin(slot)
	c.onTorn = func(tries int) {
		switch tries {
		case 3: // half of the value is there
			copy(slot[dataAt+1:], "new")
		case 6: // the version is even, but the checksum is another write's
			slot[0] = byte(version)
		case 9:
			finish(slot, version)
		}
	}
	if v, got, err := c.get(ctx, "a"); err != nil || string(v) != "new" || got != version || c.torn != 9 {
		t.Errorf("%q, version %d of %d, %d torn reads, %v", v, got, version, c.torn, err)
	}
}

// A read that ends with its context does not break others, and its client says why it can be used no more.
func TestCancelledGet(t *testing.T) {
	tab, address := start(t, 64)
	c, other := connect(t, address), connect(t, address)
	slot := tab.mem[home("a", tab.n)*slotSize:][:slotSize]
	tab.mu.Lock()
	version := begin(slot)
	tab.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	c.onTorn = func(int) { cancel() }
	if _, _, err := c.get(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := c.put(t.Context(), "b", nil, anyVersion); err == nil || !strings.Contains(err.Error(), "connection to") {
		t.Errorf("%v", err)
	}
	tab.mu.Lock()
	finish(slot, version)
	tab.mu.Unlock()
	if _, err := other.put(t.Context(), "a", []byte("x"), anyVersion); err != nil {
		t.Error(err)
	}
}

// Three clients write and read the same few keys. Each value is one repeated byte, so a torn value would show.
func TestThreeClients(t *testing.T) {
	_, address := start(t, 16)
	const rounds = 300
	var all sync.WaitGroup
	for i := range 3 {
		c := connect(t, address)
		all.Go(func() {
			for r := range rounds {
				key := fmt.Sprint(r % 3)
				if _, err := c.put(t.Context(), key, bytes.Repeat([]byte{byte('a' + i)}, 1+r%maxValue), anyVersion); err != nil {
					t.Error(err)
					return
				}
				v, _, err := c.get(t.Context(), key)
				if err != nil || len(bytes.TrimLeft(v, string(v[:1]))) != 0 {
					t.Errorf("%q, %v", v, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// When the server is killed, each of three clients that get and put gets an error, and none hangs.
func TestKilledServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), serverMode+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(address, "EADDRINUSE") {
		t.Skip("the sockets of this system do not let two processes share an address: " + address)
	}
	errs, running := make(chan error), make(chan struct{}, 3)
	for i := range 3 {
		c := connect(t, strings.TrimSpace(address))
		go func() {
			key := fmt.Sprint(i)
			_, err := c.put(ctx, key, []byte(key), anyVersion)
			for n := 0; err == nil; n++ {
				if n == 10 {
					running <- struct{}{}
				}
				if i == 0 { // the others only read
					_, err = c.put(ctx, key, []byte(key), anyVersion)
				} else {
					_, _, err = c.get(ctx, key)
				}
			}
			errs <- err
		}()
	}
	for range 3 {
		<-running
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-errs; ctx.Err() != nil || !strings.HasPrefix(err.Error(), "connection to the server: ") {
			t.Errorf("%v", err)
		}
	}
	if _, err := dial(ctx, strings.TrimSpace(address)); err == nil {
		t.Error("connected to a dead server")
	}
}

// Requests that are malformed change nothing and end only their connection.
func TestMalformedRequests(t *testing.T) {
	tab, address := start(t, 16)
	for _, b := range [][]byte{{}, make([]byte, requestHead-1), make([]byte, requestHead),
		{3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		{opPut, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'x'}, {opPut, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if _, ok := tab.do(b); ok {
			t.Errorf("%v is accepted", b)
		}
	}
	if answer, ok := tab.do([]byte{opPut, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); !ok ||
		!errors.Is(statuses[answer[0]], errSize) {
		t.Errorf("an empty key: %v, %v", answer, ok)
	}
	bad, good := connect(t, address), connect(t, address)
	if err := bad.id.PostSend(0, []byte("nonsense"), nil, verbs.SendInline); err != nil {
		t.Fatal(err)
	}
	if _, err := bad.put(t.Context(), "a", nil, anyVersion); err == nil {
		t.Error("the connection goes on after a malformed request")
	}
	if _, err := good.put(t.Context(), "a", nil, anyVersion); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	slot := make([]byte, slotSize)
	put(slot, "key", []byte("value"))
	f.Add(slot)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < slotSize {
			return
		}
		_, _, _, _ = parse(b[:slotSize])
	})
}

// A client that is not connected leaves no memory registered.
func TestRefusedClientLeavesNothing(t *testing.T) {
	c := &client{buf: make([]byte, bufSize)}
	if err := c.connect(t.Context(), addr+":1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("connected to nobody: %v", err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
	if err := c.mr.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("the memory is still registered: %v", err)
	}
}

// The demonstration's clients lose no increment.
func TestDemo(t *testing.T) {
	if got := output.Of(t, func() {
		if err := demo(t.Context()); err != nil {
			t.Error(err)
		}
	}); !strings.HasPrefix(got, `"300" version `) {
		t.Errorf("printed %q", got)
	}
}

// A get takes one READ.
func BenchmarkGet(b *testing.B) {
	ctx, stop := context.WithCancel(b.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- runServer(ctx, addr+":0", func(a string) { ready <- a }) }()
	c, err := dial(ctx, <-ready)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.put(ctx, "a", []byte("x"), anyVersion); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := c.get(ctx, "a"); err != nil {
			b.Fatal(err)
		}
	}
	_ = c.close()
	stop()
	<-ended
}

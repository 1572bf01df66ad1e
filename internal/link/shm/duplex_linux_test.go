package shm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
)

// duplexPair makes both ends of a stream.
func duplexPair(t testing.TB) (a, b *Duplex) {
	t.Helper()
	l, err := ListenDuplex()
	if err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error, 1)
	go func() {
		var err error
		b, err = DialDuplex(l.Token)
		dialed <- err
	}()
	a, err = l.Accept()
	if err := errors.Join(err, <-dialed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	return a, b
}

// waitFor waits until the socket of an end has an event.
func (d *Duplex) waitFor(t *testing.T) {
	p := []unix.PollFd{{Fd: int32(d.FD()), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 20_000)
	for err == unix.EINTR {
		n, err = unix.Poll(p, 20_000)
	}
	if n != 1 {
		t.Errorf("no wake-up after 20 s: %v", err)
	}
	d.OnEvent()
}

// Bytes arrive in order and unchanged, and an end that sleeps is woken, for data as for room.
func TestDuplexCarriesBytes(t *testing.T) {
	a, b := duplexPair(t)
	const total = 4 << 20
	data := make([]byte, total)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	var done sync.WaitGroup
	for _, way := range [][2]*Duplex{{a, b}} {
		done.Go(func() {
			r := rand.New(rand.NewPCG(3, 4))
			for at := 0; at < total && !t.Failed(); {
				n := min(total-at, r.IntN([]int{100, 100_000}[at>>18&1]))
				n, err := way[0].Write([][]byte{data[at : at+n/3], nil, data[at+n/3 : at+n]})
				if at += n; err == unix.EAGAIN && way[0].AwaitRoom() {
					way[0].waitFor(t)
				}
			}
			way[0].Flush()
		})
		done.Go(func() {
			r := rand.New(rand.NewPCG(5, 6))
			got, place, buf := make([]byte, 0, total), make([]byte, 50_000), make([]byte, 5000)
			for len(got) < total && !t.Failed() {
				k := r.IntN(len(place))
				n, err := way[1].Read(place[:k], buf)
				if got = append(append(got, place[:min(n, k)]...), buf[:max(n-k, 0)]...); err == unix.EAGAIN && way[1].Sleep() {
					way[1].waitFor(t)
					way[1].Awake()
				}
			}
			if !bytes.Equal(got, data) {
				t.Error("other bytes have arrived")
			}
		})
	}
	done.Wait()
}

// event reports whether the socket of an end has an event, and takes it.
func (d *Duplex) event() bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(d.FD()), Events: unix.POLLIN}}, 0)
	d.OnEvent()
	return n == 1
}

// A reader that sleeps is woken once for many pieces: by Flush, when much was written, and when the sender waits.
func TestDuplexWakesOnce(t *testing.T) {
	write := func(d *Duplex, n int) {
		t.Helper()
		if got, err := d.Write([][]byte{make([]byte, n)}); got != n || err != nil {
			t.Fatalf("%d bytes of %d are written, %v", got, n, err)
		}
	}
	a, b := duplexPair(t)
	a.Flush()
	write(a, 4*maxPiece)
	if b.event() {
		t.Error("the reader is woken before Flush")
	}
	a.Flush()
	if !b.event() {
		t.Error("Flush does not wake the reader")
	}
	write(a, maxPiece)
	if a.Flush(); b.event() {
		t.Error("the reader is woken again before it sleeps again")
	}
	a, b = duplexPair(t)
	if write(a, wakeStep); !b.event() {
		t.Error("the reader is not woken after wakeStep bytes")
	}
	a, b = duplexPair(t)
	write(a, 1)
	if a.AwaitRoom() || !b.event() {
		t.Error("the reader is not woken by a sender that waits")
	}
}

// A sender that waits for room is woken once there is much of it, and not before.
func TestDuplexRoomComesAtOnce(t *testing.T) {
	a, b := duplexPair(t)
	for err := error(nil); err == nil; {
		_, err = a.Write([][]byte{make([]byte, maxPiece)})
	}
	if !a.AwaitRoom() {
		t.Fatal("the ring is not full")
	}
	read := 0
	for buf := make([]byte, maxPiece); !a.event(); {
		n, err := b.Read(nil, buf)
		if read += n; err != nil {
			t.Fatalf("no wake-up after %d bytes: %v", read, err)
		}
	}
	if read < roomStep || read > roomStep+2*maxPiece {
		t.Errorf("a wake-up after %d bytes, want %d", read, roomStep)
	}
	if n, err := a.Write([][]byte{make([]byte, roomStep/2)}); n != roomStep/2 || err != nil {
		t.Errorf("%d bytes are written, %v", n, err)
	}
}

// A peer that asks for wake-ups and takes none does not block a sender, as if it were stopped.
func TestDuplexFullSocket(t *testing.T) {
	a, b := duplexPair(t)
	var buf [8]byte
	for i := range uint64(5000) {
		b.sleep.Store(2*i + 1)
		if n, err := a.Write([][]byte{{1}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		a.Flush()
		if n, err := b.Read(nil, buf[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := unix.Send(a.FD(), []byte{duplexWake}, unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("the socket is not full: %v", err)
	}
}

// Descriptors that come with wake-ups are closed.
func TestDuplexTakesNoDescriptors(t *testing.T) {
	a, b := duplexPair(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	err := unix.Sendmsg(b.FD(), []byte{duplexWake}, unix.UnixRights(pipe[1]), nil, 0)
	if err := errors.Join(err, unix.Close(pipe[1])); err != nil {
		t.Fatal(err)
	}
	if !a.event() {
		t.Error("there is no event")
	}
	if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the pipe has still a writer: %d, %v", n, err)
	}
}

// A peer may write anything at any time, also while its memory is read: what is read is bounded, and nothing fails
// but the stream.
func TestDuplexChangingMemory(t *testing.T) {
	for seed := range uint64(20) {
		a, b := duplexPair(t)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			r := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				word := b.own.word(duplexRing + line*r.IntN(ringOfDuplex/line))
				switch r.IntN(4) {
				case 0:
					word = b.own.word(line * r.IntN(3))
					word.Store(r.Uint64N(1<<12) * line)
				case 1:
					word.Store(r.Uint64())
				default:
					word.Store(uint64(duplexBytes)<<32 | r.Uint64N(200))
				}
			}
		}()
		place, buf := make([]byte, 300), make([]byte, 300)
		for range 300 {
			if n, err := a.Read(place, buf); n > len(place)+len(buf) || n == 0 && err == nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			if n, err := a.Write([][]byte{place, buf}); n > len(place)+len(buf) || n == 0 && err == nil {
				t.Errorf("%d bytes are written, %v", n, err)
			}
			a.Flush()
			a.Sleep()
			a.AwaitRoom()
			a.OnEvent()
		}
		close(stop)
		<-done
	}
}

// An end learns that the peer reads its memory, and that it has closed its end. What was sent before can be read.
func TestDuplexEnds(t *testing.T) {
	a, b := duplexPair(t)
	if ready, gone := a.OnEvent(); ready || gone {
		t.Errorf("at first: %v, %v", ready, gone)
	}
	b.Start()
	if ready, gone := a.OnEvent(); !ready || gone {
		t.Errorf("after Start: %v, %v", ready, gone)
	}
	if n, err := b.Write([][]byte{[]byte("last")}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	b.Flush()
	b.Close()
	for range 2 { // the wake-up, then the end
		a.OnEvent()
	}
	if _, gone := a.OnEvent(); !gone {
		t.Error("the end of the peer is unknown")
	}
	if _, err := a.Write([][]byte{{1}}); err != unix.EPIPE {
		t.Errorf("a write without a peer: %v", err)
	}
	var buf [8]byte
	if n, err := a.Read(nil, buf[:]); err != nil || string(buf[:n]) != "last" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := a.Read(nil, buf[:]); err != unix.EAGAIN {
		t.Errorf("after the last bytes: %v", err)
	}
}

// Memory that cannot be read or written is EFAULT, and no byte after it is sent.
func TestDuplexUnmappedMemory(t *testing.T) {
	a, b := duplexPair(t)
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Write([][]byte{{1, 2}}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := b.Read(mem[:2], nil); err != unix.EFAULT {
		t.Errorf("a read into such memory: %v", err)
	}
	for range 2 {
		if n, err := a.Write([][]byte{{3}, mem[:5]}); n != 0 || err != unix.EFAULT {
			t.Errorf("a write of such memory: %d, %v", n, err)
		}
	}
	buf := make([]byte, 100)
	if n, err := b.Read(nil, buf); n != 2 || err != nil || buf[0] != 1 || buf[1] != 2 {
		t.Errorf("%v, %v", buf[:n], err)
	}
}

// Invalid values in the memory of the peer are EPROTO.
func TestDuplexInvalidMemory(t *testing.T) {
	for name, word := range map[string]uint64{
		"no kind": 8, "empty": 1 << 32, "another kind": 1 | 2<<32, "aux": 1 | 1<<32 | 1<<40,
		"longer than the ring": 1<<32 - 1 | 1<<32, "over the end": ringOfDuplex | 1<<32,
	} {
		a, b := duplexPair(t)
		b.own.word(duplexRing).Store(word)
		for range 2 {
			if n, err := a.Read(nil, make([]byte, 100)); n != 0 || err != unix.EPROTO {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if a.Ready() {
				t.Errorf("%s: there is something to read", name)
			}
		}
	}
	for _, head := range []uint64{1, 1 << 40, ^uint64(0)} {
		a, b := duplexPair(t)
		b.own.word(duplexHead).Store(head)
		for range 2 * ringOfDuplex / maxPiece {
			if _, err := a.Write([][]byte{make([]byte, maxPiece)}); err != nil {
				if err != unix.EPROTO || a.AwaitRoom() {
					t.Errorf("head %#x: %v", head, err)
				}
				break
			}
		}
		if a.prod.Err() == nil {
			t.Errorf("head %#x is valid", head)
		}
	}
}

// Whatever is in the memory of the peer, a read ends and returns no more than was asked for.
func FuzzDuplexMemory(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 7}, uint64(1), uint64(1))
	f.Add([]byte{0, 0, 0, 0, 255, 0, 0, 0}, uint64(3), uint64(64))
	a, b := duplexPair(f)
	f.Fuzz(func(t *testing.T, mem []byte, words, head uint64) {
		clear(b.own.bytes[duplexRing:])
		copy(b.own.bytes[duplexRing:], mem)
		b.own.word(duplexSleep).Store(words)
		b.own.word(duplexRoom).Store(words)
		b.own.word(duplexHead).Store(head)
		d := &Duplex{fd: a.fd, own: a.own, peer: a.peer, sleep: a.sleep, room: a.room}
		a.own.word(duplexHead).Store(0)
		clear(a.own.bytes[duplexRing:])
		if err := d.rings(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000)
		for range 100 {
			if n, err := d.Read(buf[:500], buf[500:]); err != nil || n > len(buf) {
				break
			}
		}
		for range 100 {
			if _, err := d.Write([][]byte{buf}); err != nil {
				break
			}
		}
		d.Sleep()
		d.AwaitRoom()
		d.OnEvent()
	})
}

// Handshakes that a correct process does not make are refused.
func TestDuplexRefusesHandshakes(t *testing.T) {
	var files []*os.File
	sealed := func(size int) *os.File {
		_, f, err := create(size)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		return f
	}
	open, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(open), "test")
	if err := unsealed.Truncate(duplexSize); err != nil {
		t.Fatal(err)
	}
	hello := frame{kind: frameHello, size: ringOfDuplex}
	for name, send := range map[string]func(c *net.UnixConn) error{
		"nothing":       func(c *net.UnixConn) error { return nil },
		"no descriptor": func(c *net.UnixConn) error { return sendFrame(c, hello) },
		"another ring": func(c *net.UnixConn) error {
			return sendFrame(c, frame{kind: frameHello, word: hello.word}, sealed(duplexSize))
		},
		"no token": func(c *net.UnixConn) error {
			return sendFrame(c, frame{kind: frameHello, size: ringOfDuplex, word: duplexMagic}, sealed(duplexSize))
		},
		"unsealed memory": func(c *net.UnixConn) error { return sendFrame(c, hello, unsealed) },
		"short memory":    func(c *net.UnixConn) error { return sendFrame(c, hello, sealed(page)) },
		"two descriptors": func(c *net.UnixConn) error { return sendFrame(c, hello, sealed(duplexSize), unsealed) },
	} {
		was, open := duplexes.Load(), descriptors(t)
		l, err := ListenDuplex()
		if err != nil {
			t.Fatal(err)
		}
		hello.word = l.Token
		c, err := net.DialUnix("unix", nil, duplexName(l.Token))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(send(c), c.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); err == nil {
			t.Errorf("%s: is accepted", name)
		}
		if n := duplexes.Load(); n != was {
			t.Errorf("%s: %d ends are left", name, n-was)
		}
		_ = c.Close()
		for _, f := range files {
			_ = f.Close()
		}
		files = nil
		if n := descriptors(t); n > open {
			t.Errorf("%s: %d descriptors are left", name, n-open)
		}
	}
}

// A process has a limited number of ends, and a listener that nobody dials ends.
func TestDuplexLimits(t *testing.T) {
	defer duplexes.Add(-maxDuplexes)
	l, err := ListenDuplex()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	duplexes.Add(maxDuplexes)
	if _, err := ListenDuplex(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("ListenDuplex: %v", err)
	}
	if _, err := DialDuplex(l.Token); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("DialDuplex: %v", err)
	}
	start := time.Now()
	if _, err := l.Accept(); err == nil || time.Since(start) > 20*time.Second {
		t.Errorf("Accept without a peer: %v after %v", err, time.Since(start))
	}
}

// A process of another user that connects does not take the place of the peer.
func TestDuplexStranger(t *testing.T) {
	l, err := ListenDuplex()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	name := duplexName(l.Token) // which has the user
	lingering.OtherUser(t, func() {
		c, err := net.DialUnix("unix", nil, name)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
	})
	go func() {
		if d, err := DialDuplex(l.Token); err == nil {
			d.Close()
		}
	}()
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

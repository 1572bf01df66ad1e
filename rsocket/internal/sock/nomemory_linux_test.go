package sock

import (
	"errors"
	"math"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A request for whose stream there is no memory is refused, and the stream leaves nothing behind.
func TestRequestWithoutMemory(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the system may have as much memory as an int can count")
	}
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	ch := must(host.CreateEventChannel())(t)
	a, _ := Unserved()
	a.shaking, a.slots = map[*Stream]struct{}{}, make(chan struct{}, 1)
	a.slots <- struct{}{}
	st := NewStream(&Hub{Host: host, Channel: ch, users: 1}, Options{SendBuf: math.MaxInt / 4}.WithDefaults())
	st.acceptor, st.id = a, id
	if err := st.accept(rs.ConnData{}, &rdmacm.ConnParam{}); !errors.Is(err, syscall.ENOMEM) ||
		!errors.Is(st.TakeError(), syscall.ENOMEM) {
		t.Errorf("%v, error of the stream %v", err, st.err)
	}
	if _, err := ch.GetEvent(background); err == nil { // the end of the stream closes the hub
		t.Error("an event")
	}
	if a.Queued() != 0 || len(a.slots) != 0 || len(a.shaking) != 0 {
		t.Errorf("%d streams, %d slots, %d in their handshake", a.Queued(), len(a.slots), len(a.shaking))
	}
}

// A buffer that another thread unmaps while it is sent ends the connection: the message is announced already.
func TestBufferThatIsUnmappedMeanwhile(t *testing.T) {
	none := must(unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	for _, d := range []rs.Data{{N: 100}, {N: 100, Buf: [2]rs.Span{{Off: 0, Len: 100}}},
		{N: unlockedCopy + 1, Buf: [2]rs.Span{{Off: 1, Len: unlockedCopy}, {Off: 0, Len: 1}}}} {
		st, free := withCQ(t)
		st.res.sbuf = make([]byte, 2*unlockedCopy)
		b := partsOfOne(none)
		st.mu.Lock()
		st.postData(&d, verbs.WRRDMAWriteWithImm, &b)
		if st.state != streamFailed || !errors.Is(st.err, syscall.EFAULT) {
			t.Errorf("%+v: state %d, %v", d, st.state, st.err)
		}
		st.mu.Unlock()
		free()
	}
	ok(t, unix.Munmap(none))
}

// Without descriptors a datagram socket that is not open yet transfers nothing.
func TestDatagramsWithoutDescriptors(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	var before syscall.Rlimit
	ok(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: before.Max}))
	n, err := d.SendTo([]byte("x"), netip.MustParseAddrPort("127.0.0.1:9"), WaitMode{})
	m, from, err2 := d.RecvFrom(make([]byte, 1), 0, WaitMode{Nonblock: true})
	ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	if n != 0 || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("send: %d bytes, %v", n, err)
	}
	if m != 0 || from.IsValid() || !errors.Is(err2, syscall.EMFILE) {
		t.Errorf("receive: %d bytes from %v, %v", m, from, err2)
	}
	d.Close()
}

// The memory of a QP goes with it.
func TestMemoryOfADatagramQP(t *testing.T) {
	q := must(newDatagramQP(hosted(t), ownAddr.Addr(), 256))(t)
	if n := mr.Readable(q.mem); n != len(q.mem) {
		t.Errorf("%d bytes of %d are there", n, len(q.mem))
	}
	q.close()
	if n := mr.Readable(q.mem); n == len(q.mem) {
		t.Errorf("%d bytes are still there", n)
	}
}

// A message for which the program's buffer is not mapped is lost, and counts no bytes.
func TestDatagramToABufferThatIsNotMapped(t *testing.T) {
	none := must(unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	d.DeliverTwo(ownAddr, "one", "two")
	for range 2 {
		n, from, err := d.RecvFrom(none, 0, WaitMode{Nonblock: true})
		if n != 0 || from != ownAddr || !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%d bytes from %v, %v", n, from, err)
		}
	}
	if _, _, err := d.RecvFrom(nil, 0, WaitMode{Nonblock: true}); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("afterwards: %v", err)
	}
	d.Close()
	ok(t, unix.Munmap(none))
}

// A copy of several buffers says if one of them is not mapped, though the next ones are. So do messages by UDP and by a
// QP, whose slot stays free.
func TestBuffersOfWhichOneIsNotMapped(t *testing.T) {
	none := must(unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	p := partsOf([][]byte{none[:8], make([]byte, 8)})
	if n := p.look(16); n != 0 {
		t.Errorf("%d bytes are readable", n)
	}
	if p.copyTo(make([]byte, 16)) || p.left != 0 {
		t.Errorf("it is copied; %d bytes are left", p.left)
	}
	d, q, dst := withSlot(t)
	d.mu.Lock()
	if sent, err := dst.send(d, none[:8]); !sent || !errors.Is(err, syscall.EFAULT) || len(q.free) != 1 {
		t.Errorf("by the QP: sent %v, %v, %d free slots", sent, err, len(q.free))
	}
	dst.forget()
	if sent, err := dst.send(d, none[:8]); !sent || !errors.Is(err, syscall.EFAULT) {
		t.Errorf("by UDP: sent %v, %v", sent, err)
	}
	d.mu.Unlock()
	d.Close()
	st, free := withMaps(t, 0, 16)
	if n, err := st.IOWrite(none[:8], 0, WaitMode{}); n != 0 || !errors.Is(err, syscall.EFAULT) {
		t.Errorf("to an IO map: %d bytes, %v", n, err)
	}
	free()
	ok(t, unix.Munmap(none))
}

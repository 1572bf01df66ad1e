package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/refuse"
)

// TestAllProtocolsInNetworkOrder checks the bytes in memory, on processors of either byte order.
func TestAllProtocolsInNetworkOrder(t *testing.T) {
	if b := binary.NativeEndian.AppendUint16(nil, allProtocols); !bytes.Equal(b, []byte{0, unix.ETH_P_ALL}) {
		t.Errorf("% x", b)
	}
}

// datagrams returns a receiver, the socket that it reads, and a function that puts a message into that.
func datagrams(t *testing.T) (r *receiver, fd uintptr, put func([]byte)) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBoth(pair) })
	if err := unix.Bind(pair[0], &unix.SockaddrUnix{}); err != nil { // to a name that the kernel chooses
		t.Fatal(err)
	}
	r = &receiver{}
	r.init()
	return r, uintptr(pair[1]), func(b []byte) {
		t.Helper()
		if err := unix.Send(pair[0], b, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func closeBoth(pair [2]int) {
	_ = unix.Close(pair[0])
	_ = unix.Close(pair[1])
}

// TestFramesMustBeComplete checks that frames that are longer than a slot, or shorter than an Ethernet header, are
// dropped, and that they do not change those around them.
func TestFramesMustBeComplete(t *testing.T) {
	r, fd, put := datagrams(t)
	const room = slotSize - headroom
	for i, c := range []struct {
		len  int
		want bool
	}{
		{ethHeader, true}, {room, true}, {room + 1, false}, {ethHeader - 1, false}, {slotSize + 100, false}, {64, true},
	} {
		before, long, after := bytes.Repeat([]byte{1}, 60), bytes.Repeat([]byte{2}, c.len), bytes.Repeat([]byte{3}, 70)
		put(before)
		put(long)
		put(after)
		if n, errno := r.recv(fd); n != 3 || errno != 0 {
			t.Fatalf("%d frames, %v", n, errno)
		}
		for j, want := range [][]byte{before, long, after} {
			b, verified, ok := r.frame(j)
			if ok != (j != 1 || c.want) || verified || ok && !bytes.Equal(b, want) || !ok && b != nil {
				t.Errorf("case %d, %d bytes: frame %d has %d bytes, verified %v, accepted %v", i, c.len, j, len(b), verified, ok)
			}
		}
	}
}

// TestReceiveInBatches checks that a call returns the frames that are there, at most as many as there are slots, and
// none with an error. The kind of each frame is in the address of its sender.
func TestReceiveInBatches(t *testing.T) {
	r, fd, put := datagrams(t)
	for i := range slots + 1 {
		put(bytes.Repeat([]byte{byte(i)}, 20))
	}
	for _, want := range []struct{ first, n int }{{0, slots}, {slots, 1}} {
		n, errno := r.recv(fd)
		if n != want.n || errno != 0 {
			t.Fatalf("%d frames, %v, want %d", n, errno, want.n)
		}
		for i := range n {
			if b, _, ok := r.frame(i); !ok || !bytes.Equal(b, bytes.Repeat([]byte{byte(want.first + i)}, 20)) {
				t.Errorf("frame %d: % x", want.first+i, b)
			}
			if r.names[i].Family != unix.AF_UNIX {
				t.Errorf("frame %d: no sender", want.first+i)
			}
		}
	}
	if n, errno := r.recv(fd); n != 0 || errno != unix.EAGAIN {
		t.Errorf("without a frame: %d, %v", n, errno)
	}
	if n, errno := r.recv(^uintptr(0)); n != 0 || errno != unix.EBADF {
		t.Errorf("without a socket: %d, %v", n, errno)
	}
}

// metadata returns a control message as the kernel passes it with a frame.
func metadata(level, kind int32, aux unix.TpacketAuxdata) []byte {
	b := make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(aux))))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(int(unsafe.Sizeof(aux))))
	*(*unix.TpacketAuxdata)(unsafe.Pointer(&b[unix.CmsgLen(0)])) = aux
	return b
}

// TestMetadataOfFrames checks what the metadata of a frame decide: whether its checksums count as verified, and the
// VLAN tag that the kernel has removed.
func TestMetadataOfFrames(t *testing.T) {
	plain := make([]byte, 60)
	for i := range plain {
		plain[i] = byte(i)
	}
	tagged := func(tpid, tci uint16) []byte {
		b := bytes.Clone(plain[:12])
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, tci)
		return append(b, plain[12:]...)
	}
	const (
		tag      = unix.TP_STATUS_VLAN_VALID
		tpid     = unix.TP_STATUS_VLAN_TPID_VALID
		checked  = unix.TP_STATUS_CSUM_VALID
		unfilled = unix.TP_STATUS_CSUMNOTREADY
	)
	type aux = unix.TpacketAuxdata
	tagOf := func(status uint32) aux { return aux{Status: status, Vlan_tci: 0x6005, Vlan_tpid: 0x88a8} }
	ours := func(a aux) []byte { return metadata(unix.SOL_PACKET, unix.PACKET_AUXDATA, a) }
	for _, c := range []struct {
		name     string
		kind     uint8
		oob      []byte
		want     []byte // nil: the frame is dropped
		verified bool
	}{
		{"none", unix.PACKET_HOST, nil, plain, false},
		{"for another host", unix.PACKET_OTHERHOST, ours(aux{}), plain, false},
		{"sent by this host", unix.PACKET_OUTGOING, ours(aux{Status: checked}), nil, false},
		{"checked", 0, ours(aux{Status: checked}), plain, true},
		{"unfilled", 0, ours(aux{Status: unfilled}), plain, true},
		{"another status", 0, ours(aux{Status: unix.TP_STATUS_USER}), plain, false},
		{"a tag", 0, ours(tagOf(tag | tpid)), tagged(0x88a8, 0x6005), false},
		{"a tag, checked", 0, ours(tagOf(tag | tpid | checked)), tagged(0x88a8, 0x6005), true},
		{"a tag without its protocol", 0, ours(tagOf(tag)), tagged(0x8100, 0x6005), false},
		{"no tag", 0, ours(tagOf(tpid)), plain, false},
		{"of another level", 0, metadata(unix.SOL_SOCKET, unix.PACKET_AUXDATA, tagOf(tag|checked)), plain, false},
		{"of another type", 0, metadata(unix.SOL_PACKET, unix.PACKET_AUXDATA+1, tagOf(tag|checked)), plain, false},
		{"too short", 0, ours(tagOf(tag | checked))[:unix.CmsgLen(int(unsafe.Sizeof(aux{})))-1], plain, false},
		{"a header only", 0, ours(tagOf(tag | checked))[:unix.CmsgLen(0)], plain, false},
		{"no padding", 0, ours(tagOf(checked))[:unix.CmsgLen(int(unsafe.Sizeof(aux{})))], plain, true},
	} {
		const slot = 2
		r := &receiver{}
		r.init()
		copy(r.slot(slot)[headroom:], plain)
		r.names[slot].Pkttype = c.kind
		r.hdrs[slot].len = uint32(len(plain))
		r.hdrs[slot].hdr.SetControllen(copy(r.oobs[slot][:], c.oob))
		b, verified, ok := r.frame(slot)
		if ok != (c.want != nil) || verified != c.verified || !bytes.Equal(b, c.want) {
			t.Errorf("%s: accepted %v, verified %v, % x", c.name, ok, verified, b)
		}
	}
}

// TestOwnFramesOnOldKernels checks that frames that this host sends are not received by a socket whose kernel does not
// know PACKET_IGNORE_OUTGOING either.
func TestOwnFramesOnOldKernels(t *testing.T) {
	canOpen(t)
	l, other := open(t, "lo"), open(t, "lo") // the kernel never returns a frame to the socket that sent it
	if err := setOption(l.(*port), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 0); err != nil {
		t.Skip(err)
	}
	c := frames(l, experimental("")[12:16]...)
	for _, payload := range []string{"first", "second", "third"} {
		if err := other.Send(experimental(payload)); err != nil {
			t.Fatal(err)
		}
		// The loopback interface returns the frame once. A copy of the outgoing one would come before it.
		if got := wait(t, c); !bytes.Equal(got, experimental(payload)) {
			t.Errorf("% x, want %q", got, payload)
		}
	}
	none(t, c)
}

func setOption(p *port, level, option, value int) error {
	var refused error
	err := p.raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, refused)
}

func bufferOf(t *testing.T, p *port) (n int) {
	t.Helper()
	if err := p.raw.Control(func(fd uintptr) {
		n, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestReceiveBuffer checks that a process that may exceed the system's limit of receive buffers does, and that another
// one gets as much as the system allows.
func TestReceiveBuffer(t *testing.T) {
	canOpen(t)
	p := open(t, "lo").(*port)
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF} {
		t.Run("", func(t *testing.T) {
			if option == unix.SO_RCVBUF {
				onlyRawPackets(t)
			}
			if err := setOption(p, unix.SOL_SOCKET, option, recvBuffer); err != nil {
				t.Skipf("this test needs CAP_NET_ADMIN: %v", err)
			}
			if got, want := bufferOf(t, open(t, "lo").(*port)), bufferOf(t, p); got != want {
				t.Errorf("%d bytes, want %d", got, want)
			}
		})
	}
}

// onlyRawPackets takes all rights but that to open packet sockets from this goroutine, whose thread ends with it.
func onlyRawPackets(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	caps := [2]unix.CapUserData{{Effective: 1 << unix.CAP_NET_RAW, Permitted: 1 << unix.CAP_NET_RAW}}
	if err := unix.Capset(&hdr, &caps[0]); err != nil {
		t.Skip(err)
	}
}

// TestWithoutRecvmmsg checks that frames are received while the system refuses recvmmsg.
func TestWithoutRecvmmsg(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		t.Run(errno.Error(), func(t *testing.T) { // a goroutine of its own
			r, fd, put := datagrams(t)
			for i := range 3 {
				put(bytes.Repeat([]byte{byte(i)}, 20+i))
			}
			if err := refuse.Thread(errno, unix.SYS_RECVMMSG); err != nil {
				t.Skip(err)
			}
			for i := range 3 {
				n, errno := r.recv(fd)
				if n != 1 || errno != 0 {
					t.Fatalf("%d frames, %v", n, errno)
				}
				if b, _, ok := r.frame(0); !ok || !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 20+i)) {
					t.Errorf("frame %d: % x", i, b)
				}
			}
			if n, errno := r.recv(fd); n != 0 || errno != unix.EAGAIN {
				t.Errorf("without a frame: %d, %v", n, errno)
			}
		})
	}
}

// TestOpenWithoutOptions checks that a socket that cannot be set up is an error, and is closed.
func TestOpenWithoutOptions(t *testing.T) {
	canOpen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := refuse.Thread(unix.ENOPROTOOPT, unix.SYS_SETSOCKOPT); err != nil {
			t.Log(err)
			return
		}
		before := len(fdset.Descriptors())
		l, err := Open("lo")
		if err == nil {
			_ = l.Close()
		}
		if !errors.Is(err, unix.ENOPROTOOPT) || !strings.Contains(err.Error(), "raw packets of lo") {
			t.Errorf("%v, want ENOPROTOOPT", err)
		}
		if after := len(fdset.Descriptors()); after != before {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	}()
	<-done
}

// TestFullQueue checks that a frame for which the kernel has no room is sent again, not for ever, and that another
// error ends it.
func TestFullQueue(t *testing.T) {
	full := os.NewSyscallError("write", unix.ENOBUFS)
	for _, c := range []struct {
		results []error // of each try; the last one of all further ones
		tries   int
		want    error
	}{
		{[]error{nil}, 1, nil}, {[]error{full, full, nil}, 3, nil}, {[]error{full}, sendTries, unix.ENOBUFS},
		{[]error{full, unix.EMSGSIZE}, 2, unix.EMSGSIZE},
	} {
		tries := 0
		err := untilRoom(func() error {
			tries++
			return c.results[min(tries, len(c.results))-1]
		})
		if tries != c.tries || !errors.Is(err, c.want) {
			t.Errorf("%v after %d tries, want %v after %d", err, tries, c.want, c.tries)
		}
	}
}

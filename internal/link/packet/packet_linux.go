package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link"
)

// Supported reports whether the system has packet sockets.
const Supported = true

const (
	slots      = 8
	headroom   = 4 // for a VLAN tag
	slotSize   = 1<<16 + 256
	recvBuffer = 4 << 20
	sendTries  = 100 // while the kernel's queue is full
	ethHeader  = 14
)

// allProtocols is ETH_P_ALL in network byte order, as a socket address has it.
var allProtocols = binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})

// port is a packet socket.
type port struct {
	file *os.File
	raw  syscall.RawConn
	ifi  *net.Interface // as it was when the port was bound to it; changed by MTU
	done sync.WaitGroup
	rx   receiver
}

// Open opens a network interface for frames. It returns EPERM without CAP_NET_RAW, ENODEV without such an
// interface.
func Open(name string) (link.Raw, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("link/packet: no interface %q: %w", name, syscall.ENODEV)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, explain(name, err)
	}
	fd = fdset.Own(fd)
	if err := setUp(fd, ifi.Index); err != nil {
		_ = unix.Close(fd)
		return nil, explain(name, err)
	}
	p := &port{file: os.NewFile(uintptr(fd), "packet socket of "+name), ifi: ifi}
	p.raw, _ = p.file.SyscallConn() // fails for a closed file only
	return p, nil
}

// explain adds the remedy to an error of opening a socket.
func explain(name string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("link/packet: raw packets of %s need the capability CAP_NET_RAW: run the program as root, or: "+
			"setcap cap_net_raw+ep PROGRAM: %w",
			name, syscall.EPERM)
	}
	return fmt.Errorf("link/packet: raw packets of %s: %w", name, err)
}

func setUp(fd, ifindex int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return err
	}
	// Frames that this host sends are not received. Old kernels do not know the option: Recv checks each frame
	// then.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, recvBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer)
	}
	return bind(fd, ifindex)
}

// bind makes a socket receive the frames of an interface, for all addresses, and send to it.
func bind(fd, ifindex int) error {
	// The loopback interface, for example, has no filter that could be opened.
	_ = unix.SetsockoptPacketMreq(
		fd,
		unix.SOL_PACKET,
		unix.PACKET_ADD_MEMBERSHIP,
		&unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC},
	)
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: ifindex})
}

// MTU returns the length of the longest frame as the interface is now, or as it was if it is gone. If it is gone and
// another interface has its name, the frames are those of that one from now on.
func (p *port) MTU() int {
	ifi, err := net.InterfaceByIndex(p.ifi.Index)
	if err != nil {
		p.follow()
		ifi = p.ifi
	}
	return ifi.MTU + ethHeader
}

// follow binds the socket to the interface that has the name of the old one, if there is one.
func (p *port) follow() {
	ifi, err := net.InterfaceByName(p.ifi.Name)
	if err != nil {
		return
	}
	if e := p.raw.Control(func(fd uintptr) { err = bind(int(fd), ifi.Index) }); e == nil && err == nil {
		p.ifi = ifi
	}
}

// Send gives a frame to the kernel.
func (p *port) Send(frame []byte) error {
	return untilRoom(func() error {
		_, err := p.file.Write(frame)
		return err
	})
}

// untilRoom calls send again while the kernel's queue is full, up to sendTries times.
func untilRoom(send func() error) error {
	var err error
	for range sendTries {
		if err = send(); !errors.Is(err, unix.ENOBUFS) {
			break
		}
		runtime.Gosched()
	}
	return err
}

// Start starts receiving.
func (p *port) Start(receive func(frame []byte, verified bool)) {
	p.rx.init()
	p.done.Go(func() { p.run(receive) })
}

// run receives until the socket is closed.
func (p *port) run(receive func(frame []byte, verified bool)) {
	var n int
	wait := func(fd uintptr) bool {
		var errno syscall.Errno
		n, errno = p.rx.recv(fd)
		return errno != unix.EAGAIN
	}
	for p.raw.Read(wait) == nil {
		for i := range n {
			if frame, verified, ok := p.rx.frame(i); ok {
				receive(frame, verified)
			}
		}
	}
}

// Close closes the socket and waits until receive has returned.
func (p *port) Close() error {
	err := p.file.Close()
	p.done.Wait()
	return err
}

// receiver holds the buffers of recvmmsg.
type receiver struct {
	hdrs  [slots]mmsghdr
	iovs  [slots]unix.Iovec
	names [slots]unix.RawSockaddrLinklayer
	oobs  [slots][64]byte
	bufs  []byte
}

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

func (r *receiver) init() {
	r.bufs = make([]byte, slots*slotSize)
	for i := range slots {
		buf := r.slot(i)[headroom:]
		r.iovs[i].Base = &buf[0]
		r.iovs[i].SetLen(len(buf))
		h := &r.hdrs[i].hdr
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Control = &r.oobs[i][0]
	}
}

func (r *receiver) slot(i int) []byte { return r.bufs[i*slotSize : (i+1)*slotSize] }

// recv receives frames into the slots. It continues after an error of the interface, which may come up again.
func (r *receiver) recv(fd uintptr) (int, syscall.Errno) {
	for i := range slots {
		h := &r.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrLinklayer
		h.SetControllen(len(r.oobs[i]))
	}
	n, _, errno := unix.Syscall6(
		unix.SYS_RECVMMSG,
		fd,
		uintptr(unsafe.Pointer(&r.hdrs[0])),
		slots,
		unix.MSG_DONTWAIT,
		0,
		0,
	)
	if errno == unix.EPERM || errno == unix.ENOSYS { // refused to this process (seccomp): one frame instead
		n, _, errno = unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.hdrs[0].hdr)), unix.MSG_DONTWAIT)
		r.hdrs[0].len, n = uint32(n), 1
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// frame returns the frame in slot i if it is complete and not sent by this host.
func (r *receiver) frame(i int) (b []byte, verified, ok bool) {
	m := &r.hdrs[i]
	n := int(m.len)
	if r.names[i].Pkttype == unix.PACKET_OUTGOING || m.hdr.Flags&unix.MSG_TRUNC != 0 || n < ethHeader {
		return nil, false, false
	}
	slot := r.slot(i)
	b = slot[headroom : headroom+n]
	aux := auxdata(r.oobs[i][:m.hdr.Controllen])
	if aux == nil {
		return b, false, true
	}
	verified = aux.Status&(unix.TP_STATUS_CSUMNOTREADY|unix.TP_STATUS_CSUM_VALID) != 0
	if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
		b = slot[:headroom+n]
		copy(b, b[headroom:headroom+12])
		tpid := uint16(unix.ETH_P_8021Q)
		if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			tpid = aux.Vlan_tpid
		}
		binary.BigEndian.PutUint16(b[12:], tpid)
		binary.BigEndian.PutUint16(b[14:], aux.Vlan_tci)
	}
	return b, verified, true
}

// auxdata returns the metadata that the kernel passes with a frame.
func auxdata(oob []byte) *unix.TpacketAuxdata {
	const header = unix.SizeofCmsghdr
	if len(oob) < header+int(unsafe.Sizeof(unix.TpacketAuxdata{})) {
		return nil
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	if h.Level != unix.SOL_PACKET || h.Type != unix.PACKET_AUXDATA {
		return nil
	}
	return (*unix.TpacketAuxdata)(unsafe.Pointer(&oob[header]))
}

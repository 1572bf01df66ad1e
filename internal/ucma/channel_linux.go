package ucma

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// File is the kernel's connection manager.
const File = "/dev/infiniband/rdma_cm"

// Channel is an open connection manager. All methods are safe for concurrent use, but Next is for one goroutine.
type Channel struct {
	f    *os.File
	conn syscall.RawConn
}

// Open opens the connection manager. ENOENT without the module rdma_ucm, EACCES without the right.
func Open() (*Channel, error) {
	fd, err := syscall.Open(File, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return nil, fmt.Errorf("%s: %w: load the module rdma_ucm, or give the container the devices of /dev/infiniband",
			File, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return nil, fmt.Errorf("%s: %w: add the user to the group of the file", File, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	f := os.NewFile(uintptr(fd), File)
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Channel{f, conn}, nil
}

// Close ends Next and destroys all IDs.
func (c *Channel) Close() error { return c.f.Close() }

// header is the length of struct rdma_ucm_cmd_hdr.
const header = 8

// command is a command with its structure of n bytes.
type command []byte

func newCommand(cmd uint32, n int) command {
	b := make(command, header+n)
	ne.PutUint32(b, cmd)
	ne.PutUint16(b[4:], uint16(n))
	return b
}

// body is the structure.
func (b command) body() []byte { return b[header:] }

// write passes the command to the kernel.
func (b command) write(fd uintptr) error {
	for {
		_, err := syscall.Write(int(fd), b)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// do runs a command without answer.
func (c *Channel) do(b command) error {
	var err error
	if e := c.conn.Control(func(fd uintptr) { err = b.write(fd) }); e != nil {
		return e
	}
	return err
}

// ask runs a command, whose structure begins with the address of the answer.
func (c *Channel) ask(b command, answer []byte) error { return c.askAt(b, 0, answer) }

// askAt runs a command, whose structure has the address of the answer at an offset.
func (c *Channel) askAt(b command, at int, answer []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	b.answerTo(&pin, at, answer)
	return c.do(b)
}

// answerTo says where the answer goes. It must not move until it is unpinned.
func (b command) answerTo(pin *runtime.Pinner, at int, answer []byte) {
	pin.Pin(&answer[0])
	ne.PutUint16(b[6:], uint16(len(answer)))
	ne.PutUint64(b.body()[at:], uint64(uintptr(unsafe.Pointer(&answer[0]))))
}

// Next waits for an event. It fails when the channel is closed.
func (c *Channel) Next() (*Event, error) {
	b, answer := newCommand(cmdGetEvent, 8), make([]byte, eventLen)
	var pin runtime.Pinner
	defer pin.Unpin()
	b.answerTo(&pin, 0, answer)
	var err error
	e := c.conn.Read(func(fd uintptr) bool {
		err = b.write(fd)
		return !errors.Is(err, syscall.EAGAIN)
	})
	if e = errors.Join(e, err); e != nil {
		return nil, e
	}
	return eventOf(answer), nil
}

// Create makes an ID in a port space for a type of QP, both with the numbers of C. Its events have uid.
func (c *Channel) Create(uid uint64, portSpace uint16, qpType verbs.QPType) (uint32, error) {
	b, answer := newCommand(cmdCreateID, 24), make([]byte, 4)
	ne.PutUint64(b.body(), uid)
	ne.PutUint16(b.body()[16:], portSpace)
	b.body()[18] = uint8(qpType)
	err := c.askAt(b, 8, answer)
	return ne.Uint32(answer), err
}

// Destroy destroys an ID. It has no more events.
func (c *Channel) Destroy(id uint32) error {
	b := newCommand(cmdDestroyID, 16)
	ne.PutUint32(b.body()[8:], id)
	return c.ask(b, make([]byte, 4))
}

// Bind gives an ID its local address.
func (c *Channel) Bind(id uint32, a netip.AddrPort, scope uint32) error {
	b := newCommand(cmdBind, 8+sockaddrLen)
	ne.PutUint32(b.body(), id)
	ne.PutUint16(b.body()[4:], uint16(putAddr(b.body()[8:], a, scope)))
	return c.do(b)
}

// Resolve begins to find the device and the link address for traffic from one address, which may be a wildcard, to
// another.
func (c *Channel) Resolve(id uint32, from, to netip.AddrPort, scope, timeoutMS uint32) error {
	b := newCommand(cmdResolveAddr, 16+2*sockaddrLen)
	ne.PutUint32(b.body(), id)
	ne.PutUint32(b.body()[4:], timeoutMS)
	ne.PutUint16(b.body()[8:], uint16(putAddr(b.body()[16:], from, scope)))
	ne.PutUint16(b.body()[10:], uint16(putAddr(b.body()[16+sockaddrLen:], to, scope)))
	return c.do(b)
}

// ResolveRoute begins to find the path.
func (c *Channel) ResolveRoute(id, timeoutMS uint32) error {
	b := newCommand(cmdResolveRoute, 8)
	ne.PutUint32(b.body(), id)
	ne.PutUint32(b.body()[4:], timeoutMS)
	return c.do(b)
}

// Query returns the device and the addresses of an ID.
func (c *Channel) Query(id uint32) (Place, error) {
	b, answer := newCommand(cmdQuery, 16), make([]byte, queryAddrLen)
	ne.PutUint32(b.body()[8:], id) // the option after it, 0, is QUERY_ADDR
	if err := c.ask(b, answer); err != nil {
		return Place{}, err
	}
	return placeOf(answer), nil
}

// Listen begins to take requests.
func (c *Channel) Listen(id uint32, backlog int) error {
	b := newCommand(cmdListen, 8)
	ne.PutUint32(b.body(), id)
	ne.PutUint32(b.body()[4:], uint32(backlog))
	return c.do(b)
}

// Connect sends a request.
func (c *Channel) Connect(id uint32, p *Param, e ECE) error {
	b := newCommand(cmdConnect, paramLen+16)
	p.put(b.body())
	ne.PutUint32(b.body()[paramLen:], id)
	e.put(b.body()[paramLen+8:])
	return c.do(b)
}

// put writes the description of abilities.
func (e ECE) put(b []byte) {
	ne.PutUint32(b, e.Vendor)
	ne.PutUint32(b[4:], e.Options)
}

// Accept accepts a request, whose events have uid from now on. Without p it acknowledges a reply.
func (c *Channel) Accept(id uint32, uid uint64, p *Param, e ECE) error {
	b := newCommand(cmdAccept, 8+paramLen+16)
	ne.PutUint64(b.body(), uid)
	p.put(b.body()[8:])
	ne.PutUint32(b.body()[8+paramLen:], id)
	e.put(b.body()[8+paramLen+8:])
	return c.do(b)
}

// Reject refuses a request or a reply.
func (c *Channel) Reject(id uint32, reason uint8, private []byte) error {
	b := newCommand(cmdReject, 8+MaxPrivate)
	ne.PutUint32(b.body(), id)
	b.body()[4] = uint8(min(copy(b.body()[8:], private), MaxPrivate-1))
	b.body()[5] = reason
	return c.do(b)
}

// Disconnect ends a connection, or agrees to its end.
func (c *Channel) Disconnect(id uint32) error {
	b := newCommand(cmdDisconnect, 4)
	ne.PutUint32(b.body(), id)
	return c.do(b)
}

// InitQPAttr returns the attributes and the mask for the transition of the ID's QP to a state.
func (c *Channel) InitQPAttr(id uint32, s verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	b, answer := newCommand(cmdInitQPAttr, 16), make([]byte, qpAttrLen)
	ne.PutUint32(b.body()[8:], id)
	ne.PutUint32(b.body()[12:], uint32(s))
	if err := c.ask(b, answer); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	a, mask := qpAttrOf(answer)
	return a, mask, nil
}

// Notify passes on an asynchronous event of the ID's QP.
func (c *Channel) Notify(id uint32, ev verbs.EventType) error {
	b := newCommand(cmdNotify, 8)
	ne.PutUint32(b.body(), id)
	ne.PutUint32(b.body()[4:], uint32(ev))
	return c.do(b)
}

// Join joins a multicast group. It returns the number for Leave; the events have uid.
func (c *Channel) Join(id uint32, uid uint64, group netip.AddrPort, scope uint32, flags uint16) (uint32, error) {
	b, answer := newCommand(cmdJoinMcast, 24+sockaddrLen), make([]byte, 4)
	ne.PutUint64(b.body()[8:], uid)
	ne.PutUint32(b.body()[16:], id)
	ne.PutUint16(b.body()[20:], uint16(putAddr(b.body()[24:], group, scope)))
	ne.PutUint16(b.body()[22:], flags)
	err := c.ask(b, answer)
	return ne.Uint32(answer), err
}

// Leave leaves a multicast group.
func (c *Channel) Leave(group uint32) error {
	b := newCommand(cmdLeaveMcast, 16)
	ne.PutUint32(b.body()[8:], group)
	return c.ask(b, make([]byte, 4))
}

// SetOption sets an option.
func (c *Channel) SetOption(id uint32, level, name int, value []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&value[0])
	b := newCommand(cmdSetOption, 24)
	ne.PutUint64(b.body(), uint64(uintptr(unsafe.Pointer(&value[0]))))
	ne.PutUint32(b.body()[8:], id)
	ne.PutUint32(b.body()[12:], uint32(level))
	ne.PutUint32(b.body()[16:], uint32(name))
	ne.PutUint32(b.body()[20:], uint32(len(value)))
	return c.do(b)
}

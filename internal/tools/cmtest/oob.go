package cmtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// peerInfo is an instance of cmtime: where it listens, or that it connects.
type peerInfo struct {
	addr   netip.AddrPort
	listen bool
}

// peerLen is the length of a peerInfo as the C program sends it on 64-bit machines: a struct sockaddr_storage and an
// enum, in the byte order of the host.
const (
	peerLen    = 136
	storageLen = 128
	familyIP4  = 2
	familyIP6  = 10
)

func (p *peerInfo) bytes() []byte {
	b := make([]byte, peerLen)
	if p.listen {
		binary.NativeEndian.PutUint32(b[storageLen:], 1)
	}
	binary.BigEndian.PutUint16(b[2:], p.addr.Port())
	switch a := p.addr.Addr(); {
	case a.Is4():
		binary.NativeEndian.PutUint16(b, familyIP4)
		copy(b[4:], a.AsSlice())
	case a.Is6():
		binary.NativeEndian.PutUint16(b, familyIP6)
		copy(b[8:], a.AsSlice())
		if n, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
			binary.NativeEndian.PutUint32(b[24:], uint32(n))
		}
	}
	return b
}

func parsePeer(b []byte) (p peerInfo, err error) {
	role := binary.NativeEndian.Uint32(b[storageLen:])
	port := binary.BigEndian.Uint16(b[2:])
	p.listen = role == 1
	switch family := binary.NativeEndian.Uint16(b); {
	case role > 1:
		err = fmt.Errorf("an instance has role %d: must be 0 or 1; run cmtime of rdma-core 60 or newer, or Verbena's", role)
	case !p.listen:
	case family == familyIP4:
		p.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case family == familyIP6:
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if n := binary.NativeEndian.Uint32(b[24:]); n != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(n), 10))
		}
		p.addr = netip.AddrPortFrom(a, port)
	default:
		err = fmt.Errorf("an instance listens at an address of family %d: must be %d or %d", family, familyIP4, familyIP6)
	}
	return p, err
}

// oob connects the instances of cmtime over TCP: one is the controller, to which the others have a connection each.
type oob struct {
	root  bool
	conns []net.Conn // of the controller: to the others
}

const (
	oobTries = 120
	oobPause = 500 * time.Millisecond
)

// meetAt becomes the controller at an address, if it is this host's and nobody has it, and waits for the others; or
// connects to the controller, which may not have started.
func meetAt(ctx context.Context, addr, port string, others int, root func()) (*oob, error) {
	at := net.JoinHostPort(addr, port)
	l, taken := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if taken == nil {
		defer l.Close()
		root()
		return gatherAt(ctx, l, others)
	}
	for try := 1; ; try++ {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err == nil {
			return &oob{conns: []net.Conn{c}}, nil
		}
		if try == oobTries || ctx.Err() != nil {
			return nil, fmt.Errorf("no controller: %w; %w; start one at %s, with the same -C and -p", taken, err, addr)
		}
		time.Sleep(oobPause)
	}
}

func gatherAt(ctx context.Context, l net.Listener, others int) (*oob, error) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	o := &oob{root: true}
	for range others {
		c, err := l.Accept()
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		o.conns = append(o.conns, c)
	}
	return o, nil
}

func (o *oob) close() (err error) {
	for _, c := range o.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// exchange tells all instances of each other; the controller is the first one of the list.
func (o *oob) exchange(me peerInfo, count int) (all []peerInfo, err error) {
	b := make([]byte, count*peerLen)
	if o.root {
		copy(b, me.bytes())
		for i, c := range o.conns {
			if _, err := io.ReadFull(c, b[(1+i)*peerLen:(2+i)*peerLen]); err != nil {
				return nil, oobLost(err)
			}
		}
		err = o.send(b)
	} else if err = o.send(me.bytes()); err == nil {
		_, err = io.ReadFull(o.conns[0], b)
	}
	if err != nil {
		return nil, oobLost(err)
	}
	for ; len(b) > 0; b = b[peerLen:] {
		p, err := parsePeer(b[:peerLen])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (o *oob) send(b []byte) error {
	for _, c := range o.conns {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// sync waits until all instances have reached a step.
func (o *oob) sync(step byte) error {
	await := func() error {
		var b [1]byte
		for _, c := range o.conns {
			if _, err := io.ReadFull(c, b[:]); err != nil {
				return oobLost(err)
			}
			if b[0] != step {
				return fmt.Errorf("another instance is at step %d, this one at step %d", b[0], step)
			}
		}
		return nil
	}
	if o.root {
		if err := await(); err != nil {
			return err
		}
		return oobLost(o.send([]byte{step}))
	}
	if err := o.send([]byte{step}); err != nil {
		return oobLost(err)
	}
	return await()
}

func oobLost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("another instance has ended, look at its output: %w", err)
}

package rdmacm

import (
	"encoding/binary"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/verbs"
)

// Levels and names of SetOption (RDMA_OPTION_*).
const (
	OptionID = 0 // level
	OptionIB = 1 // level

	OptionIDTOS        = 0 // 1 byte
	OptionIDReuseAddr  = 1 // int, 4 bytes
	OptionIDAFOnly     = 2 // int, 4 bytes
	OptionIDAckTimeout = 3 // 1 byte

	OptionIBPath = 1 // path records of 72 bytes
)

// options are the options of an ID, which the methods called Set change.
type options struct {
	tos           uint8
	reuse, afonly bool // the table of ports reads them under Host.mu; they change under both locks
	ackTimeout    uint8
	ackTimeoutSet bool
	pathMTU       verbs.MTU // 0: that of the route
	keepAlive     time.Duration
	ece           ECE
}

// SetOption sets an option of the ID as the C function does (rdma_set_option): value is the bytes of an uint8 or int
// in the machine's byte order, or an array of struct ibv_path_data. EINVAL for a wrong length, state or value, ENOSYS
// for an unknown level or name. Go programs use the methods called Set instead.
func (id *ID) SetOption(level, name int, value []byte) error {
	const op = opSetOption
	want := 1
	switch {
	case level == OptionID && (name == OptionIDReuseAddr || name == OptionIDAFOnly):
		want = 4
	case level == OptionID && (name == OptionIDTOS || name == OptionIDAckTimeout):
	case level == OptionIB && name == OptionIBPath:
		return id.setPath(op, value)
	default:
		return id.wrong(op, syscall.ENOSYS, "unknown option %d of level %d", name, level)
	}
	if len(value) != want {
		return id.wrong(op, syscall.EINVAL, "value of %d bytes: must be %d", len(value), want)
	}
	switch name {
	case OptionIDTOS:
		return id.SetTOS(value[0])
	case OptionIDAckTimeout:
		return id.SetAckTimeout(value[0])
	case OptionIDReuseAddr:
		return id.SetReuseAddr(binary.NativeEndian.Uint32(value) != 0)
	default:
		return id.SetAFOnly(binary.NativeEndian.Uint32(value) != 0)
	}
}

// SetTOS sets the type of service, or traffic class, of the connection's packets (RDMA_OPTION_ID_TOS). It
// applies to routes that are resolved, and requests that come, afterwards.
func (id *ID) SetTOS(tos uint8) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == stDestroying {
		return id.errClosed(opSetOption)
	}
	if err := id.kernelOption(ucma.OptionTOS, []byte{tos}); err != nil {
		return err
	}
	id.tos = tos
	return nil
}

// SetReuseAddr lets IDs that all have it bind the same address and port (RDMA_OPTION_ID_REUSEADDR). Only one of them
// can listen. EINVAL to set it in LISTEN, or to clear it after BindAddr.
func (id *ID) SetReuseAddr(on bool) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(opSetOption)
	case on && id.state == stListen:
		return id.fail(opSetOption, syscall.EINVAL, "REUSEADDR set in %v: must be set before Listen", id.state)
	case !on && id.state != stIdle:
		return id.fail(opSetOption, syscall.EINVAL, "REUSEADDR cleared in %v: must be cleared before BindAddr", id.state)
	}
	id.host.mu.Lock() // the table of ports reads it
	id.reuse = on
	id.host.mu.Unlock()
	return nil
}

// SetAFOnly makes a wildcard address stand for its own family only (RDMA_OPTION_ID_AFONLY, as IPV6_V6ONLY). EINVAL
// after Listen or ResolveAddr.
func (id *ID) SetAFOnly(on bool) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(opSetOption)
	case id.state != stIdle && id.state != stAddrBound:
		return id.fail(opSetOption, syscall.EINVAL, "AFONLY set in %v: must be set before Listen and ResolveAddr", id.state)
	}
	id.host.mu.Lock() // the table of ports reads it
	id.afonly = on
	id.host.mu.Unlock()
	return nil
}

// oneFamily reports whether a wildcard address of the ID stands for its own family only: by SetAFOnly, and always that
// of IPv4, as in Linux. Host.mu or id.mu is held.
//
// +checklocksignore
func (id *ID) oneFamily() bool { return id.afonly || id.local.Addr().Is4() }

// SetAckTimeout sets the ACK timeout of the ID's own QP to 4.096 us * 2^code, 0 for no timeout, code 0 to 31
// (RDMA_OPTION_ID_ACK_TIMEOUT). It applies to connections made afterwards. EINVAL for datagrams.
func (id *ID) SetAckTimeout(code uint8) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(opSetOption)
	case id.qpType != verbs.QPTypeRC && id.qpType != verbs.QPTypeXRCSend:
		return id.fail(opSetOption, syscall.EINVAL, "ACK timeout of a %v QP: must be RC or XRC_SEND", id.qpType)
	case code > 31:
		return id.fail(opSetOption, syscall.EINVAL, "ACK timeout %d: must be 0 to 31", code)
	}
	if err := id.kernelOption(ucma.OptionAckTimeout, []byte{code}); err != nil {
		return err
	}
	id.ackTimeout, id.ackTimeoutSet = code, true
	return nil
}

// SetKeepAlive makes the ID's QP check its peer when no packet has come for the time idle, at least 1 ms; 0 ends that
// (librdmacm has no twin; verbs.QP.SetKeepAlive has the details). It is for connections that only receive, which learn
// of no other failure. When the peer does not answer the QP goes to ERR, its requests are flushed, and
// EventDisconnected is reported with the status -ETIMEDOUT: at the latest after twice idle, or idle + 5 s if idle is
// shorter than 5 s. Connections that a listening ID accepts later have it too. EINVAL for another time, or a QP that is
// not of type RC or XRC_SEND.
func (id *ID) SetKeepAlive(idle time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(opSetOption)
	case !id.sends():
		return id.fail(opSetOption, syscall.EINVAL, "keep-alive of a %v QP: must be RC or XRC_SEND", id.qpType)
	case idle < 0, idle > 0 && idle < time.Millisecond:
		return id.fail(opSetOption, syscall.EINVAL, "keep-alive after %v: must be 0 or at least 1ms", idle)
	}
	id.keepAlive = idle
	if id.qp == nil {
		return nil
	}
	return id.because(opSetOption, id.qp.SetKeepAlive(idle))
}

// SetPathMTU fixes the path MTU of the connections made afterwards (the MTU of RDMA_OPTION_IB_PATH): of an ID that
// connects, its requests ask for mtu and no less; of an ID that will listen, requests that ask for more are refused
// with reason 26 and mtu. Without it requests ask for what the port and the system's route allow, and again with less
// if the peer refuses that. EINVAL for an unknown MTU, and after ResolveRoute or Listen. ResolveRoute fails with EINVAL
// if mtu is larger than the port's active MTU, and with EOPNOTSUPP on an iWARP adapter. The kernel, which makes the
// connections of adapters, gives reason 28 in place of 26 and mtu.
func (id *ID) SetPathMTU(mtu verbs.MTU) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(opSetOption)
	case mtu.Bytes() == 0:
		return id.fail(opSetOption, syscall.EINVAL, "path MTU %v: must be a constant, verbs.MTU256 to verbs.MTU4096", mtu)
	case id.state != stIdle && id.state != stAddrBound && id.state != stAddrQuery && id.state != stAddrResolved:
		return id.fail(opSetOption, syscall.EINVAL, "path MTU set in %v: must be set before ResolveRoute and Listen",
			id.state)
	}
	id.pathMTU = mtu
	return nil
}

// opSetOption names the calls that set options in errors.
const opSetOption = "set_option"

const (
	pathDataLen   = 72   // struct ibv_path_data
	pathRecordLen = 64   // struct ibv_path_record, its end
	pathBoth      = 0x2B // GMP | PRIMARY | OUTBOUND | INBOUND_REVERSE
)

// setPath takes the route from the program instead of ResolveRoute.
func (id *ID) setPath(op string, value []byte) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stAddrResolved); err != nil {
		return err
	}
	if len(value) == 0 || len(value)%pathDataLen != 0 {
		return id.fail(op, syscall.EINVAL, "%d bytes of path records: must be a multiple of %d", len(value), pathDataLen)
	}
	for ; len(value) > 0; value = value[pathDataLen:] {
		if binary.NativeEndian.Uint32(value) == pathBoth {
			p := parsePath(value[8:pathDataLen])
			switch {
			case !id.dev.hasPKey(id.sgid.port, p.PKey):
				return id.fail(op, syscall.EINVAL, "P_Key %#x: must be in the table of %v", p.PKey, id.dev.vdev)
			case id.dev.kernel:
				id.pathMTU = p.MTU
				return id.pathToKernel(op, value[:pathDataLen])
			}
			id.path, id.haveRoute, id.state = p, true, stRouteResolved
			id.pathMTU = id.path.MTU
			id.path.FlowLabel = flowLabel(id.local.Port(), id.remote.Port())
			id.push(&Event{Type: EventRouteResolved})
			return nil
		}
	}
	return id.fail(op, syscall.EINVAL,
		"no path record with the flags GMP, PRIMARY, OUTBOUND and INBOUND_REVERSE (%#x): one must have them", pathBoth)
}

// data is a struct ibv_path_data with the path, for both directions.
func (p *PathRec) data() []byte {
	const exactly = 2 << 6 // the selector before MTU, rate and life time
	be, b := binary.BigEndian, make([]byte, pathDataLen)
	binary.NativeEndian.PutUint32(b, pathBoth)
	r := b[pathDataLen-pathRecordLen:]
	copy(r[8:], p.DGID[:])
	copy(r[24:], p.SGID[:])
	be.PutUint16(r[40:], p.DLID)
	be.PutUint16(r[42:], p.SLID)
	be.PutUint32(r[44:], p.FlowLabel<<8|uint32(p.HopLimit))
	r[48], r[49] = p.TrafficClass, p.NumbPath&0x7F
	if p.Reversible {
		r[49] |= 0x80
	}
	be.PutUint16(r[50:], p.PKey)
	r[53], r[54], r[55] = p.SL&0xF, exactly|uint8(p.MTU)&0x3F, exactly|p.Rate&0x3F
	r[56], r[57] = exactly|p.PacketLifeTime&0x3F, p.Preference
	return b
}

// parsePath reads a struct ibv_path_record of 64 bytes.
func parsePath(b []byte) PathRec {
	be := binary.BigEndian
	hops := be.Uint32(b[44:])
	return PathRec{
		DGID: verbs.GID(b[8:]), SGID: verbs.GID(b[24:]), DLID: be.Uint16(b[40:]), SLID: be.Uint16(b[42:]),
		FlowLabel: hops >> 8 & 0xFFFFF,
		HopLimit:  uint8(hops), TrafficClass: b[48], Reversible: b[49]>>7 == 1, NumbPath: b[49] & 0x7F,
		PKey: be.Uint16(b[50:]),
		SL:   b[53] & 0xF, MTU: verbs.MTU(b[54] & 0x3F), Rate: b[55] & 0x3F, PacketLifeTime: b[56] & 0x3F, Preference: b[57],
	}
}

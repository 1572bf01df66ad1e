package rdmacm

import (
	"encoding/binary"
	"syscall"

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

// SetOption sets an option of the ID in the form that the C function has (rdma_set_option): the bytes of an uint8 or int in the
// machine's byte order, or an array of struct ibv_path_data. EINVAL for a wrong length, state or value, ENOSYS for an
// unknown level or name. The other methods called Set are the same thing for Go.
func (id *ID) SetOption(level, name int, value []byte) error {
	const op = "set_option"
	want := 1
	switch {
	case level == OptionID && (name == OptionIDReuseAddr || name == OptionIDAFOnly):
		want = 4
	case level == OptionID && (name == OptionIDTOS || name == OptionIDAckTimeout):
	case level == OptionIB && name == OptionIBPath:
		return id.setPath(op, value)
	default:
		return id.wrong(op, syscall.ENOSYS, "there is no option %d of level %d", name, level)
	}
	if len(value) != want {
		return id.wrong(op, syscall.EINVAL, "the option's value has %d bytes, not %d", want, len(value))
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
// counts for routes that are resolved, and requests that come, afterwards.
func (id *ID) SetTOS(tos uint8) error {
	return id.option(func() error { id.tos = tos; return nil })
}

// SetReuseAddr lets IDs that all have it bind the same address and port (RDMA_OPTION_ID_REUSEADDR). Only one of them can listen. EINVAL
// to set it in LISTEN, or to take it back after BindAddr.
func (id *ID) SetReuseAddr(on bool) error {
	return id.option(func() error {
		if on && id.state == stListen || !on && id.state != stIdle {
			return id.fail("set_option", syscall.EINVAL, "REUSEADDR cannot be set to %v in %v", on, id.state)
		}
		id.host.mu.Lock() // other IDs look at it
		id.reuse = on
		id.host.mu.Unlock()
		return nil
	})
}

// SetAFOnly makes a wildcard address stand for its own family only (RDMA_OPTION_ID_AFONLY, as IPV6_V6ONLY). EINVAL after Listen or
// ResolveAddr.
func (id *ID) SetAFOnly(on bool) error {
	return id.option(func() error {
		if id.state != stIdle && id.state != stAddrBound {
			return id.fail("set_option", syscall.EINVAL, "AFONLY cannot be set in %v", id.state)
		}
		id.host.mu.Lock()
		id.afonly = on
		id.host.mu.Unlock()
		return nil
	})
}

// SetAckTimeout sets the ACK timeout of the ID's own QP to 4.096 us * 2^code, 0 for no timeout, code up to 31
// (RDMA_OPTION_ID_ACK_TIMEOUT). It counts for connections made afterwards. EINVAL for datagrams.
func (id *ID) SetAckTimeout(code uint8) error {
	return id.option(func() error {
		if id.qpType != verbs.QPTypeRC && id.qpType != verbs.QPTypeXRCSend || code > 31 {
			return id.fail("set_option", syscall.EINVAL, "ACK timeout %d of a %v QP; 0 to 31 of RC is possible", code, id.qpType)
		}
		id.ackTimeout, id.ackTimeoutSet = code, true
		return nil
	})
}

func (id *ID) option(set func() error) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == stDestroying {
		return &Error{Op: "set_option", Obj: id.obj(), Errno: syscall.EINVAL, Err: ErrClosed}
	}
	return set()
}

const (
	pathDataLen = 72   // struct ibv_path_data
	pathBoth    = 0x2B // GMP | PRIMARY | OUTBOUND | INBOUND_REVERSE
)

// setPath takes the route from the program instead of ResolveRoute.
func (id *ID) setPath(op string, value []byte) error {
	return id.option(func() error {
		if err := id.in(op, stAddrResolved); err != nil {
			return err
		}
		if len(value) == 0 || len(value)%pathDataLen != 0 {
			return id.fail(op, syscall.EINVAL, "%d bytes are not path records of %d", len(value), pathDataLen)
		}
		for ; len(value) > 0; value = value[pathDataLen:] {
			if binary.NativeEndian.Uint32(value) == pathBoth {
				id.path, id.haveRoute, id.state = parsePath(value[8:pathDataLen]), true, stRouteResolved
				id.path.FlowLabel = flowLabel(id.local.Port(), id.remote.Port())
				id.push(&Event{Type: EventRouteResolved})
				return nil
			}
		}
		return id.fail(op, syscall.EINVAL, "no path has the flags GMP, PRIMARY, OUTBOUND and INBOUND_REVERSE (%#x)", pathBoth)
	})
}

// parsePath reads a struct ibv_path_record of 64 bytes.
func parsePath(b []byte) PathRec {
	be := binary.BigEndian
	hops := be.Uint32(b[44:])
	return PathRec{
		DGID: verbs.GID(b[8:]), SGID: verbs.GID(b[24:]), DLID: be.Uint16(b[40:]), SLID: be.Uint16(b[42:]), FlowLabel: hops >> 8 & 0xFFFFF,
		HopLimit: uint8(hops), TrafficClass: b[48], Reversible: b[49]>>7 == 1, NumbPath: b[49] & 0x7F, PKey: be.Uint16(b[50:]),
		SL: b[53] & 0xF, MTU: verbs.MTU(b[54] & 0x3F), Rate: b[55] & 0x3F, PacketLifeTime: b[56] & 0x3F, Preference: b[57],
	}
}

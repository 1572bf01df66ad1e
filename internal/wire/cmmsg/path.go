package cmmsg

// PathLen is the length of a path inside a REQ, in bytes.
const PathLen = 44

// Path is a path inside a REQ, 44 bytes, as the sender sees it: local LID 16; remote LID 16; local GID 128; remote
// GID 128; flow label 20, reserved 6, packet rate 6; traffic class 8; hop limit 8; SL 4, subnet local 1, reserved
// 3; local ACK timeout 5, reserved 3. The path of a LAP differs in the last eight bytes: LAP has accessors of its
// own.
type Path []byte

// LocalLID and RemoteLID are the ports' local identifiers. RoCE has none: they are LIDPermissive, or 0 on a path
// with hop limit 1.
func (p Path) LocalLID() uint16  { return be.Uint16(p) }
func (p Path) RemoteLID() uint16 { return be.Uint16(p[2:]) }

// LIDPermissive is the LID of a port without one.
const LIDPermissive = 0xFFFF

// LocalGID and RemoteGID are the ports' global identifiers: for RoCEv2, the IP addresses, IPv4 as ::ffff:a.b.c.d.
func (p Path) LocalGID() [16]byte  { return [16]byte(p[4:20]) }
func (p Path) RemoteGID() [16]byte { return [16]byte(p[20:36]) }

// FlowLabel is the flow label of the path's packets, 20 bits.
func (p Path) FlowLabel() uint32 { return be.Uint32(p[36:]) >> 12 }

// Rate is the code of the packet rate, 6 bits; 0 for the port's own.
func (p Path) Rate() uint8 { return p[39] & 0x3F }

// TClass is the traffic class, or type of service.
func (p Path) TClass() uint8 { return p[40] }

// HopLimit is the hop limit, or time to live.
func (p Path) HopLimit() uint8 { return p[41] }

// SL is the service level, 4 bits.
func (p Path) SL() uint8 { return p[42] >> 4 }

// SubnetLocal reports whether both ports are in one subnet.
func (p Path) SubnetLocal() bool { return p[42]&0x08 != 0 }

// AckTimeout is the code of the sender's local ACK timeout, 5 bits: 4.096 us * 2^n.
func (p Path) AckTimeout() uint8 { return p[43] >> 3 }

// PathFields is the decoded form of a Path.
type PathFields struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID [16]byte
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits
	TClass, HopLimit    uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits
}

// Fields reads the whole path.
func (p Path) Fields() PathFields {
	return PathFields{
		LocalLID: p.LocalLID(), RemoteLID: p.RemoteLID(), LocalGID: p.LocalGID(), RemoteGID: p.RemoteGID(),
		FlowLabel: p.FlowLabel(),
		Rate:      p.Rate(), TClass: p.TClass(), HopLimit: p.HopLimit(), SL: p.SL(), SubnetLocal: p.SubnetLocal(),
		AckTimeout: p.AckTimeout(),
	}
}

// Put writes the whole path, reserved bits as 0.
func (p Path) Put(f PathFields) {
	_ = p[PathLen-1]
	putEnds(p, &f)
	be.PutUint32(p[36:], f.FlowLabel<<12|uint32(f.Rate&0x3F))
	p[40], p[41] = f.TClass, f.HopLimit
	p[42] = f.SL<<4 | bit(f.SubnetLocal, 0x08)
	p[43] = f.AckTimeout << 3
}

// putEnds writes LIDs and GIDs.
func putEnds(p []byte, f *PathFields) {
	be.PutUint16(p, f.LocalLID)
	be.PutUint16(p[2:], f.RemoteLID)
	copy(p[4:20], f.LocalGID[:])
	copy(p[20:36], f.RemoteGID[:])
}

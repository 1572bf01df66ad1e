package cm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// ID is one end of a connection or of a look-up (struct ib_cm_id). It is good for one: make a new one for the next. A machine
// makes those of the passive side; it knows an ID from its first message until it is idle or destroyed.
type ID struct {
	// Context and Bequest are the caller's; nil after Destroy is Context only.
	Context any
	Bequest any // where its last word is kept; see LastWords

	state     State
	lap       lapState
	changed   bool // it is in Machine.changed
	used      bool // it has done something, so cannot begin
	destroyed bool // no more events
	bereft    bool // the peer's process has died before its RTU came
	active    bool

	knownPeer, knownQP, knownSIDR bool // it is in that table

	transport                cmmsg.Transport
	respResources, initDepth uint8
	retryCount, rnrRetry     uint8
	ackTimeout               uint8 // the QP's
	maxRetries               uint8

	localID, remoteID   uint32
	localQPN, remoteQPN uint32
	localPSN, remotePSN uint32 // what each QP sends first is the other's
	remoteGUID          uint64
	tid                 uint64 // the peer's, when it is to be echoed
	service             cmmsg.ServiceID

	interval int64 // between repetitions
	deadline int64
	slot     int32 // in the heap of timers, plus one

	pend    *pending // what repeats
	backlog *Backlog // where it holds a place
	answer  []byte   // private data of the RTU or DREP, should it have to be sent again
	path    Path
}

// Path is the way to a peer and back. The zero value of each field but the addresses stands for the usual.
type Path struct {
	link.Path        // Src is this device's, Dst the peer's
	PKey      uint16 // 0 means 0xFFFF
	MTU       uint8  // 1 (256 bytes) to 5 (4096)
	SL        uint8  // 4 bits
	Rate      uint8  // 6 bits; 0 is the port's own
	LifeTime  uint8  // packet life time, a time code; 0 means DefaultLifeTime
}

// setDefaults fills in what is usual.
func (p *Path) setDefaults() {
	if p.PKey == 0 {
		p.PKey = wire.DefaultPKey
	}
	if p.HopLimit == 0 {
		p.HopLimit = 64
	}
	if p.LifeTime == 0 {
		p.LifeTime = DefaultLifeTime
	}
}

// fields is the path as a REQ or LAP has it.
func (p *Path) fields(ackTimeout uint8) cmmsg.PathFields {
	f := cmmsg.PathFields{
		LocalGID: cmmsg.GID(p.Src), RemoteGID: cmmsg.GID(p.Dst), FlowLabel: p.FlowLabel, Rate: p.Rate, TClass: p.TClass, HopLimit: p.HopLimit,
		SL: p.SL, SubnetLocal: p.HopLimit <= 1, AckTimeout: ackTimeout,
	}
	if !f.SubnetLocal {
		f.LocalLID, f.RemoteLID = cmmsg.LIDPermissive, cmmsg.LIDPermissive
	}
	return f
}

// NewID makes an ID for Connect or Lookup. It costs the machine nothing before that.
func (m *Machine) NewID(context any) *ID { return &ID{Context: context} }

// State is where it is.
func (id *ID) State() State { return id.state }

// LocalID and RemoteID are the communication IDs of both ends, for a look-up the request ID; 0 while not known.
func (id *ID) LocalID() uint32  { return id.localID }
func (id *ID) RemoteID() uint32 { return id.remoteID }

// Service is the service ID that was asked for.
func (id *ID) Service() cmmsg.ServiceID { return id.service }

// Path is the way to the peer. On the passive side it is the request's, turned round; its life time is derived
// from the request's ACK timeout.
func (id *ID) Path() *Path { return &id.path }

func (id *ID) peerKey(n uint32) peerKey {
	return peerKey{cmmsg.GID(id.path.Dst), id.remoteGUID, n}
}

func (id *ID) sidrKey() sidrKey { return sidrKey{cmmsg.GID(id.path.Dst), id.remoteID} }

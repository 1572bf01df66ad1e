package cm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// ID is one end of a connection or of a look-up (struct ib_cm_id). It is used once. The machine makes the IDs of the
// passive side. It knows an ID from its first message until it is idle or destroyed.
type ID struct {
	// Context and LastWill belong to the caller. Destroy sets Context to nil.
	Context  any
	LastWill any // see Machine.LastWills

	state     State
	lap       lapState
	changed   bool // it is in Machine.changed
	used      bool // not new: Connect and Lookup fail
	destroyed bool // the caller gets no more events
	peerDied  bool // the peer's process has died before its RTU came
	active    bool

	knownPeer, knownQP, knownSIDR bool // it is in Machine.peers, qps, sidr

	undecided, halfOpen bool // passive: the program has not answered; the peer has not acknowledged the REP
	leftover            bool // it is in Machine.timewait
	class               sourceClass

	transport                cmmsg.Transport
	respResources, initDepth uint8
	retryCount, rnrRetry     uint8
	ackTimeout               uint8 // the QP's
	maxRetries               uint8

	localID, remoteID   uint32
	localQPN, remoteQPN uint32
	localPSN, remotePSN uint32 // each QP's first PSN is the other's choice
	remoteGUID          uint64
	tid                 uint64 // transaction ID of the peer, for the answer
	service             cmmsg.ServiceID

	interval int64 // between repetitions
	slot     int32 // in the heap of timers, plus one

	listener *Listener // of a request for a connection
	source   *source   // while halfOpen
	links    [2]links
	since    int64 // when the REQ came, or the REP was sent
	until    int64 // the end of the time for the answer to the REP

	pend    *pending // the message that is repeated
	backlog *Backlog // in which it holds a place
	answer  []byte   // private data of the RTU or DREP, for its repetition
	path    Path
}

// Path is the path to a peer and back. A field that is zero has its default, except the addresses.
type Path struct {
	link.Path       // Src is this device's, Dst the peer's; PKey is that of the connection, too
	MTU       uint8 // 1 (256 bytes) to 5 (4096)
	SL        uint8 // 4 bits
	Rate      uint8 // 6 bits; 0 is the port's own
	LifeTime  uint8 // packet life time, a time code; 0 means DefaultLifeTime
}

// setDefaults replaces zeros by defaults.
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

// fields is the path in the form of a REQ or LAP.
func (p *Path) fields(ackTimeout uint8) cmmsg.PathFields {
	f := cmmsg.PathFields{
		LocalGID: cmmsg.GID(p.Src), RemoteGID: cmmsg.GID(p.Dst), FlowLabel: p.FlowLabel, Rate: p.Rate, TClass: p.TClass,
		HopLimit: p.HopLimit,
		SL:       p.SL, SubnetLocal: p.HopLimit <= 1, AckTimeout: ackTimeout,
	}
	if !f.SubnetLocal {
		f.LocalLID, f.RemoteLID = cmmsg.LIDPermissive, cmmsg.LIDPermissive
	}
	return f
}

// NewID makes an ID for Connect or Lookup. It takes no room in the machine before that.
func (m *Machine) NewID(context any) *ID { return &ID{Context: context} }

// State is the ID's state.
func (id *ID) State() State { return id.state }

// LocalID is the communication ID of this end, of a look-up the request ID; 0 while not known.
func (id *ID) LocalID() uint32 { return id.localID }

// RemoteID is the communication ID of the peer; 0 while not known.
func (id *ID) RemoteID() uint32 { return id.remoteID }

// Service is the service ID of the request.
func (id *ID) Service() cmmsg.ServiceID { return id.service }

// Path is the path to the peer. On the passive side it is the path of the request, reversed; its life time is derived
// from the request's ACK timeout.
func (id *ID) Path() *Path { return &id.path }

func (id *ID) peerKey(n uint32) peerKey {
	return peerKey{cmmsg.GID(id.path.Dst), id.remoteGUID, n}
}

func (id *ID) sidrKey() sidrKey { return sidrKey{cmmsg.GID(id.path.Dst), id.remoteID} }

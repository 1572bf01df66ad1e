package cm

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

var be = binary.BigEndian

// Config is a machine's device and limits.
type Config struct {
	GUID     uint64   // of the node; unique and constant, since peers identify connections by it
	Seed     [32]byte // random bytes, from which communication IDs and PSNs are derived
	AckDelay uint8    // the device's local CA ACK delay, a time code (4.096 us * 2^n)
	Agent    uint32   // the upper half of transaction IDs

	// IDPrefix is the upper IDBits bits of communication IDs. If several processes share a device, these bits
	// lead answers to their process.
	IDPrefix uint32
	IDBits   int

	// MaxIDs limits connections and look-ups, those in timewait included; 0 means DefaultMaxIDs. Beyond it
	// Connect and Lookup return ENOMEM and requests are dropped.
	MaxIDs int

	// MTU returns the code of the largest path MTU that the port of a local address can have now. A request with a
	// larger one gets a REJ with that code. nil stands for 5, 4096 bytes.
	MTU func(local netip.Addr) uint8

	// HasPKey reports whether the port of a local address is in the partition of a P_Key. A request with another key
	// gets a REJ with RejInvalidGID, as from Linux: there is no reason of its own. nil: every key is good.
	HasPKey func(local netip.Addr, key uint16) bool

	// LastWills enables the method LastWills.
	LastWills bool

	// MRATimeout is the code of the time in an MRA, which a peer gets if its request or reply comes again before
	// the program has answered; 0 means DefaultMRATimeout.
	MRATimeout uint8
}

// Defaults of Config and of ConnectParams: those of Linux's rdma_cm, where it has them.
const (
	DefaultMaxIDs     = 1 << 17
	DefaultMRATimeout = 24 // 68.7 s
	DefaultTimeout    = 20 // CM response timeout, 4.3 s
	DefaultMaxRetries = 15
	DefaultLifeTime   = 16 // packet life time, 268 ms
)

// A Machine is the connection management of one device. It is not safe for concurrent use.
type Machine struct {
	cfg Config

	ids       map[uint32]*ID // by our communication ID
	peers     map[peerKey]*ID
	qps       map[peerKey]*ID
	sidr      map[sidrKey]*ID
	listeners map[cmmsg.ServiceID][]*Listener
	ended     []endedService
	waiting   []waitingRequest

	timers   timers
	free     *pending // messages to be used again
	freeLen  int
	kept     int
	changed  []*ID  // IDs whose last will may have changed since LastWills was called
	words    Batch  // scratch space for a last will
	timewait idList // destroyed IDs in timewait
	sources  map[peerKey]*source
	known    int                 // number of sources that are known
	top      *source             // the source that had the most half-open handshakes, never nil
	evicted  *[evictedLen]uint32 // our IDs of evicted handshakes, by their remainders
	refused  *refusals
	answers  answerLimit
	guard    *Guard
	live     int           // IDs that are not idle
	ari      [16]byte      // additional information of the REJ being composed
	newID    func() uint32 // candidates for communication IDs, without the prefix; random: peers may know old IDs
	newPSN   func() uint32
	Counters Counters
}

// peerKey is a peer's address, the GUID of its node, and its communication ID (in Machine.peers) or its QPN (in
// Machine.qps). The address is part of the key as GUIDs are not always unique.
type peerKey struct {
	gid  [16]byte
	guid uint64
	n    uint32
}

// sidrKey is the address of a peer that looks up a service, and its number of the request.
type sidrKey struct {
	gid [16]byte
	n   uint32
}

// New makes a machine.
func New(cfg Config) *Machine {
	if cfg.MaxIDs == 0 {
		cfg.MaxIDs = DefaultMaxIDs
	}
	if cfg.MRATimeout == 0 {
		cfg.MRATimeout = DefaultMRATimeout
	}
	seed := rand.NewChaCha8(cfg.Seed)
	rng, ids := rand.New(seed), secret.NewSequence(uint32(1)<<(32-cfg.IDBits)-1, seed)
	refused := &refusals{key: be.Uint64(cfg.Seed[8:])}
	return &Machine{
		cfg: cfg, ids: map[uint32]*ID{}, peers: map[peerKey]*ID{}, qps: map[peerKey]*ID{}, sidr: map[sidrKey]*ID{},
		listeners: map[cmmsg.ServiceID][]*Listener{},
		sources:   map[peerKey]*source{}, top: &source{}, refused: refused,
		guard: newGuard(cfg.IDPrefix, cfg.IDBits, refused),
		newID: func() uint32 { return 1 + ids.Next() }, newPSN: func() uint32 { return rng.Uint32() & 0xFFFFFF },
	}
}

// Live is the number of IDs in use: all that are not IDLE, destroyed IDs in timewait included.
func (m *Machine) Live() int { return m.live }

// Established calls visit with each ID that is ESTABLISHED, in no order.
func (m *Machine) Established(visit func(*ID)) {
	for _, id := range m.ids {
		if id.state == StateEstablished && !id.destroyed {
			visit(id)
		}
	}
}

// enroll gives id a communication ID. It reports whether the table has room.
func (m *Machine) enroll(id *ID) bool {
	if m.live >= m.cfg.MaxIDs && m.timewait.first != nil {
		m.retire(m.timewait.first)
	}
	if m.live >= m.cfg.MaxIDs {
		return false
	}
	for {
		n := m.cfg.IDPrefix | m.newID()
		if _, taken := m.ids[n]; n != 0 && !taken {
			id.localID = n
			break
		}
	}
	m.ids[id.localID] = id
	m.guard.own(id.localID).Add(1)
	m.live++
	id.used = true
	m.change(id)
	return true
}

// retire ends what id is doing: it becomes IDLE, and messages do not find it any more.
func (m *Machine) retire(id *ID) {
	m.stopWaiting(id)
	id.decided()
	m.removeQP(id)
	if m.ids[id.localID] == id {
		delete(m.ids, id.localID)
		m.guard.own(id.localID).Add(^uint32(0))
	}
	m.removePeer(id)
	if id.leftover {
		id.leftover = false
		m.timewait.remove(id, inTimewait)
	}
	id.state, id.lap, id.answer = StateIdle, lapIdle, nil
	m.live--
}

// removePeer takes id out of the tables of peers and look-ups.
func (m *Machine) removePeer(id *ID) {
	if id.knownPeer {
		id.knownPeer = false
		delete(m.peers, id.peerKey(id.remoteID))
		m.guard.peer(id.remoteGUID, id.remoteID).Add(^uint32(0))
	}
	if id.knownSIDR {
		id.knownSIDR = false
		delete(m.sidr, id.sidrKey())
	}
}

// removeQP takes id out of the table of connected QPs.
func (m *Machine) removeQP(id *ID) {
	if id.knownQP {
		id.knownQP = false
		delete(m.qps, id.peerKey(id.remoteQPN))
	}
}

// sameIP reports whether two addresses are the same, without their zones and whatever their form (4-in-6).
func sameIP(a, b netip.Addr) bool { return a.As16() == b.As16() }

// ownPath reports whether a datagram, to be answered along back, came from id's peer.
func (id *ID) ownPath(back *link.Path) bool {
	return sameIP(id.path.Dst, back.Dst) && sameIP(id.path.Src, back.Src)
}

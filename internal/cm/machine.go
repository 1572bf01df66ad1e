package cm

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

var be = binary.BigEndian

// Config is what a Machine needs to know of its device and may be told of its limits.
type Config struct {
	GUID     uint64   // of the node; it must be unique and last, since peers remember connections by it
	Seed     [32]byte // random bytes: communication IDs and PSNs follow from them
	AckDelay uint8    // the device's local CA ACK delay, a time code (4.096 us * 2^n)
	Agent    uint32   // the upper half of transaction IDs

	// IDPrefix is what communication IDs have in their upper IDBits bits, where these lead answers to one of several processes.
	IDPrefix uint32
	IDBits   int

	// MaxIDs bounds connections and look-ups, those in timewait included; 0 means DefaultMaxIDs. Beyond it Connect and Lookup
	// answer ENOMEM and requests are dropped.
	MaxIDs int

	// LastWords is for those who call LastWords.
	LastWords bool

	// MRATimeout is the code of the time that a peer is told to wait when its request or reply comes again
	// and the program has not answered yet; 0 means DefaultMRATimeout.
	MRATimeout uint8
}

// Defaults of Config and of ConnectParams, those of Linux's rdma_cm where it has them.
const (
	DefaultMaxIDs     = 1 << 17
	DefaultMRATimeout = 24 // 68.7 s
	DefaultTimeout    = 20 // CM response timeout, 4.3 s
	DefaultMaxRetries = 15
	DefaultLifeTime   = 16 // packet life time, 268 ms
)

// A Machine is the connection management of one device. Its methods are called one at a time.
type Machine struct {
	cfg Config

	ids       map[uint32]*ID // by our communication ID
	peers     map[peerKey]*ID
	qps       map[peerKey]*ID
	sidr      map[sidrKey]*ID
	listeners map[cmmsg.ServiceID][]*Listener

	timers   timers
	free     *pending // messages to be used again
	freeLen  int
	ghosts   int
	changed  []*ID         // since LastWords was called
	words    Batch         // of which one is composed
	live     int           // IDs that are not idle
	ari      [16]byte      // of a REJ that is being made
	newID    func() uint32 // candidates for communication IDs
	newPSN   func() uint32
	Counters Counters
}

// peerKey is a peer's address, the GUID of its node, and its communication ID (in Machine.peers) or its QPN (in
// Machine.qps). The address is part of it because GUIDs are not as unique as they should be.
type peerKey struct {
	gid  [16]byte
	guid uint64
	n    uint32
}

// sidrKey is who asked, and its number for the question.
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
	rng := rand.New(rand.NewChaCha8(cfg.Seed))
	names := newNames(rng)
	return &Machine{
		cfg: cfg, ids: map[uint32]*ID{}, peers: map[peerKey]*ID{}, qps: map[peerKey]*ID{}, sidr: map[sidrKey]*ID{},
		listeners: map[cmmsg.ServiceID][]*Listener{}, newID: names.next, newPSN: func() uint32 { return rng.Uint32() & 0xFFFFFF },
	}
}

// Live counts the IDs that the machine knows: all that are not IDLE, destroyed ones in timewait included.
func (m *Machine) Live() int { return m.live }

// enroll gives id a communication ID of its own. It is false when the table is full.
func (m *Machine) enroll(id *ID) bool {
	if m.live >= m.cfg.MaxIDs {
		return false
	}
	for {
		n := m.cfg.IDPrefix | m.newID()<<m.cfg.IDBits>>m.cfg.IDBits
		if _, taken := m.ids[n]; n != 0 && !taken {
			id.localID = n
			break
		}
	}
	m.ids[id.localID] = id
	m.live++
	id.used = true
	m.change(id)
	return true
}

// retire ends what id is doing: it becomes IDLE, and no message finds it any more.
func (m *Machine) retire(id *ID) {
	m.settle(id)
	m.forgetQP(id)
	delete(m.ids, id.localID)
	m.unlearn(id)
	id.state, id.lap, id.answer = StateIdle, lapIdle, nil
	m.live--
}

// unlearn takes id out of the tables of peers and look-ups.
func (m *Machine) unlearn(id *ID) {
	if id.knownPeer {
		id.knownPeer = false
		delete(m.peers, id.peerKey(id.remoteID))
	}
	if id.knownSIDR {
		id.knownSIDR = false
		delete(m.sidr, id.sidrKey())
	}
}

// forgetQP takes id out of the table of live connections.
func (m *Machine) forgetQP(id *ID) {
	if id.knownQP {
		id.knownQP = false
		delete(m.qps, id.peerKey(id.remoteQPN))
	}
}

// sameIP compares addresses, zones and the 4-in-6 form aside.
func sameIP(a, b netip.Addr) bool { return a.As16() == b.As16() }

// ownPath tells whether a datagram, to be answered along back, came from where id's peer is.
func (id *ID) ownPath(back *link.Path) bool {
	return sameIP(id.path.Dst, back.Dst) && sameIP(id.path.Src, back.Src)
}

package engine

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Errors of multicast attachment.
var (
	ErrMcastFull     = errors.New("the device has no free multicast attachment")
	ErrNotAttached   = errors.New("the queue pair is not attached to the group")
	ErrMcastGroupMax = errors.New("the device has joined its maximum number of multicast groups")
)

// mcastTable maps multicast groups to attached QPs. Lookups take no lock; changes are serialised by mu.
type mcastTable struct {
	mu      sync.Mutex
	buckets [256]atomic.Pointer[mcastGroups] // each is replaced as a whole when one of its groups changes
	// +checklocks:mu
	count     int // number of groups
	maxGroups int
	maxQPs    int // per group
}

// mcastGroups maps groups to their QPs. It is immutable.
type mcastGroups map[netip.Addr][]member

// member is a QP of a group.
type member struct {
	qpn uint32
	src uint32                // the source QPN of its datagrams
	own func(netip.Addr) bool // whether an address is the device's; nil: the QP receives its own datagrams too
}

// sent reports whether the member is not to receive the packet because it has sent it.
func (m *member) sent(p *link.RxPacket) bool {
	pk := wire.Packet(p.Data)
	return m.own != nil && pk.Info().DETH != 0 && pk.DETH().SrcQPN() == m.src && m.own(p.Src)
}

func index(list []member, qpn uint32) int {
	return slices.IndexFunc(list, func(m member) bool { return m.qpn == qpn })
}

func (t *mcastTable) init(maxGroups, maxQPs int) {
	t.maxGroups, t.maxQPs = maxGroups, maxQPs
	for i := range t.buckets {
		t.buckets[i].Store(&mcastGroups{})
	}
}

// bucket returns the bucket of a group, a hash of its last bytes.
func (t *mcastTable) bucket(group netip.Addr) *atomic.Pointer[mcastGroups] {
	b := group.As16()
	return &t.buckets[b[15]^b[14]*31^b[13]*57]
}

func (t *mcastTable) members(group netip.Addr) []member { return (*t.bucket(group).Load())[group] }

// attach adds a QP to the group. Attaching again has no effect (V-MC-03). The link counts a join for each QP. It joins
// without mu, since it may wait for another process, and the QPs of other groups must not wait with it.
func (t *mcastTable) attach(l link.Link, group netip.Addr, m member) error {
	if done, err := t.add(group, m, false); done || err != nil {
		return err
	}
	if err := l.Join(group); err != nil {
		return err
	}
	done, err := t.add(group, m, true)
	if done || err != nil { // another call attached the QP meanwhile, or took the last place
		err = cmp.Or(err, l.Leave(group))
	}
	return err
}

// add adds a QP to the group if joined is set. It reports whether the QP was in the group before, and returns an error
// if there is no place for it.
func (t *mcastTable) add(group netip.Addr, m member, joined bool) (had bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.members(group)
	switch {
	case index(list, m.qpn) >= 0:
		return true, nil
	case len(list) >= t.maxQPs:
		return false, ErrMcastFull
	case len(list) == 0 && t.count >= t.maxGroups:
		return false, ErrMcastGroupMax
	}
	if joined {
		if len(list) == 0 {
			t.count++
		}
		t.replace(group, append(slices.Clone(list), m))
	}
	return false, nil
}

// detach removes QP qpn from the group, and its join of the link. The link may wait; see attach.
func (t *mcastTable) detach(l link.Link, group netip.Addr, qpn uint32) error {
	if !t.remove(group, qpn) {
		return ErrNotAttached
	}
	return l.Leave(group)
}

// remove reports whether QP qpn was in the group.
func (t *mcastTable) remove(group netip.Addr, qpn uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	had := t.members(group)
	i := index(had, qpn)
	if i < 0 {
		return false
	}
	t.replace(group, slices.Delete(slices.Clone(had), i, i+1))
	if len(had) == 1 {
		t.count--
	}
	return true
}

func (t *mcastTable) replace(group netip.Addr, list []member) {
	b := t.bucket(group)
	next := maps.Clone(*b.Load())
	if next[group] = list; len(list) == 0 {
		delete(next, group)
	}
	b.Store(&next)
}

// groupsOf returns the groups that QP qpn is attached to.
func (t *mcastTable) groupsOf(qpn uint32) (groups []netip.Addr) {
	for i := range t.buckets {
		all := *t.buckets[i].Load()
		if len(all) == 0 {
			continue // each QP that is destroyed comes here, and to begin a range over a map costs 20 ns
		}
		for g, q := range all {
			if index(q, qpn) >= 0 {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

// multicast delivers a packet to every QP of its group, each in its shard.
func (s *shard) multicast(p *link.RxPacket) {
	members := s.eng.mcast.members(p.Dst)
	if len(members) == 0 {
		s.counters.unknownGroup++
		if s.tap != nil {
			s.tap.Received(p, wire.BTH(p.Data).DestQPN(), 0, "; dropped: no QP is in the group")
		}
		return
	}
	for i := range members {
		if m := &members[i]; !m.sent(p) {
			s.deliverTo(m.qpn, p)
		}
	}
}

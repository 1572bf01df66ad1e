package soft

import (
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// gidTableLen is how many entries the GID table has.
const gidTableLen = 1024

// gidTable is a port's GID table. Entries keep their index while their address exists.
type gidTable struct {
	def  verbs.GID
	gids []verbs.GID // index 0 is the default GID; zero where an address has gone
}

// update makes the table hold the addresses and tells whether it changed. own says whether the default GID is one of them.
func (t *gidTable) update(addrs []netip.Addr) (changed bool) {
	if t.gids == nil {
		t.gids = []verbs.GID{t.def}
	}
	want := make([]verbs.GID, 0, len(addrs))
	for _, a := range addrs {
		if g := verbs.GIDFromAddr(a); g != t.def {
			want = append(want, g)
		}
	}
	for i := 1; i < len(t.gids); i++ {
		if !t.gids[i].IsZero() && !slices.Contains(want, t.gids[i]) {
			t.gids[i] = verbs.GID{}
			changed = true
		}
	}
	for _, g := range want {
		if !slices.Contains(t.gids, g) {
			changed = t.add(g) || changed
		}
	}
	return changed
}

func (t *gidTable) add(g verbs.GID) bool {
	if i := slices.Index(t.gids[1:], verbs.GID{}); i >= 0 {
		t.gids[i+1] = g
		return true
	}
	if len(t.gids) == gidTableLen {
		return false
	}
	t.gids = append(t.gids, g)
	return true
}

// entries is the table in the form of verbs. netdev tells which interface has an address.
func (t *gidTable) entries(netdev func(netip.Addr) string) []verbs.GIDEntry {
	list := make([]verbs.GIDEntry, len(t.gids))
	for i, g := range t.gids {
		list[i] = verbs.GIDEntry{GID: g, Index: i, Port: 1}
		if !g.IsZero() {
			list[i].Type, list[i].NetDev = verbs.GIDTypeRoCEv2, netdev(g.Addr())
		}
	}
	return list
}

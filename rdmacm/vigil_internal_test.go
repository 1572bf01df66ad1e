package rdmacm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A device asks the hosts of its peers once it has a connection, if there are hosts: one timer serves all connections,
// and none is made by a manager that has ended.
func TestVigilBegins(t *testing.T) {
	id, _, end := dialed(t)
	defer end()
	m := id.dev.cm
	running := time.AfterFunc(time.Hour, func() {})
	defer running.Stop()
	idle := cm.New(cm.Config{})
	m.mu.Lock()
	defer m.mu.Unlock()
	machine := m.machine
	for name, c := range map[string]struct {
		timer        *time.Timer
		onInterfaces bool
		closed       bool
		machine      *cm.Machine
		begins       bool
	}{
		"a connection":                 {nil, true, false, machine, true},
		"a second connection":          {running, true, false, machine, false},
		"without interface":            {nil, false, false, machine, false},
		"after the end":                {nil, true, true, machine, false},
		"no connection":                {nil, true, false, idle, false},
		"no connection any more":       {running, true, false, idle, false},
		"without interface, and ended": {nil, false, true, machine, false},
	} {
		m.vigil.next, m.vigil.onInterfaces, m.closed, m.machine = c.timer, c.onInterfaces, c.closed, c.machine
		m.startVigil(time.Hour)
		if begun := m.vigil.next != c.timer; begun != c.begins {
			t.Errorf("%s: a timer was set: %v, want %v", name, begun, c.begins)
		}
		if m.vigil.next != nil && m.vigil.next != running {
			m.vigil.next.Stop()
		}
	}
	m.vigil.next, m.vigil.onInterfaces, m.closed, m.machine = nil, false, false, machine
}

// Only the connections to a peer whose port is closed become suspects.
func TestSuspectsAreThoseOfTheClosedPort(t *testing.T) {
	id, _, end := dialed(t)
	defer end()
	m := id.dev.cm
	ends := vigilEnds{fuzzHere, fuzzThere}
	if peers, ok := m.vigilPeers(); !ok || len(peers) != 1 {
		t.Errorf("peers %v, %v; want those of %v", peers, ok, ends)
	} else if _, found := peers[ends]; !found {
		t.Errorf("peers %v, want %v", peers, ends)
	}
	m.ended.Done()
	for closed, want := range map[vigilEnds]int{
		ends: 1, {fuzzThere, fuzzHere}: 0, {fuzzHere, netip.MustParseAddr("198.18.0.9")}: 0,
	} {
		ids := m.suspects(map[vigilEnds]struct{}{closed: {}})
		if len(ids) != want || want == 1 && ids[0] != id {
			t.Errorf("the port of %v is closed: %d suspects, want %d", closed, len(ids), want)
		}
	}
	if ids := m.suspects(nil); ids != nil {
		t.Errorf("no port is closed: %d suspects", len(ids))
	}
}

// An ID whose QP has gone, or sends nothing, is not checked.
func TestSuspectWithoutQP(t *testing.T) {
	for _, qpType := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeXRCRecv} {
		id := &ID{ps: PSTCP, qpType: qpType}
		id.conn = connEstablished
		id.suspect(true)
		if id.suspect(false); !id.mu.TryLock() {
			t.Errorf("%v: the ID is locked", qpType)
		}
	}
}

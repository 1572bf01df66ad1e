package rdmacm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// The table of connection states as a drawing: a line for each state, "input>next" for each input that it takes.
const connDrawing = `
none          Connect>requesting request>requested
requesting    response>responded reply>established rejected>failed timeout>failed broken>broken
responded     Establish>established refuse>refused rejected>failed
requested     Accept>accepted refuse>refused rejected>failed
accepted      established>established rejected>failed timeout>failed DREQ>peer-left
established   rejected>failed DREQ>peer-left DREP>disconnected silence>silent
peer-left
silent
disconnected
refused       rejected>failed
failed
broken
`

// Every state gets every input: the inputs of the drawing lead to the states there, all others change nothing.
func TestConnectionTable(t *testing.T) {
	var b strings.Builder
	b.WriteByte('\n')
	name := func(s connState) string { return strings.ReplaceAll(s.String(), " ", "-") }
	for s := connNone; s <= connBroken; s++ {
		var line strings.Builder
		fmt.Fprintf(&line, "%-13s", name(s))
		for in := connInput(0); in < connInputs; in++ {
			c := connection{conn: s}
			if ok := c.step(in); ok {
				fmt.Fprintf(&line, " %v>%s", in, name(c.conn))
			} else if c.conn != s {
				t.Errorf("%v rejects %v and becomes %v", s, in, c.conn)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if b.String() != connDrawing {
		t.Errorf("the table is\n%swant\n%s", b.String(), connDrawing)
	}
	if len(connTable) != int(connBroken)+1 || len(connStateNames) != len(connTable) {
		t.Errorf("%d states in the table, %d names, want %d", len(connTable), len(connStateNames), connBroken+1)
	}
}

// A connection that is over reports its end once: no input leads back, and none leads to a second DISCONNECTED.
func TestConnectionEndsOnce(t *testing.T) {
	for s, row := range connTable {
		for in, next := range row {
			if connState(s).over() && (!next.over() || next == connPeerLeft || next == connDisconnected) {
				t.Errorf("%v takes %v and becomes %v", connState(s), in, next)
			}
		}
	}
	for _, s := range []connState{connNone, connRequesting, connResponded, connRequested, connAccepted, connEstablished} {
		if s.over() {
			t.Errorf("%v counts as over", s)
		}
	}
}

// Inputs that the state does not list bring no event.
func TestConnectionReportsListedInputsOnly(t *testing.T) {
	h := memoryHost(t)
	ch, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.CreateID(ch, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	id.mu.Lock()
	id.conn = connEstablished
	id.onPeerLeft()
	id.onPeerLeft()
	id.onDisconnected(0)
	id.report(inRejected, &Event{Type: EventRejected})
	id.mu.Unlock()
	ev, err := ch.TryGetEvent()
	if err != nil || ev.Type != EventDisconnected {
		t.Fatalf("%v, %v", ev, err)
	}
	_ = ev.Ack()
	if ev, err := ch.TryGetEvent(); err == nil {
		t.Errorf("%v was reported as well", ev.Type)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
}

// A wait for a completion ends with the connection, and leaves nothing when it ends otherwise. Without a connection it
// does not begin.
func TestWaitsWhileConnected(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(id *ID)
		over bool
	}{
		"connected":    {func(*ID) {}, false},
		"disconnected": {func(id *ID) { id.conn = connDisconnected }, true},
		"flushed":      {func(id *ID) { id.flushed = true }, true},
		"failed":       {func(id *ID) { id.failed = verbs.EventQPFatal }, true},
		"removed":      {func(id *ID) { id.state = stRemoved }, true},
		"closed":       {func(id *ID) { id.state = stDestroying }, true},
	} {
		id := &ID{state: stConnect}
		id.conn = connEstablished
		c.set(id)
		here, forget, over := id.whileConnected(t.Context())
		if over != c.over || (here.Err() != nil) != c.over || (len(id.waiting) == 0) != c.over {
			t.Errorf("%s: over %v, %v, %d waits", name, over, here.Err(), len(id.waiting))
		}
		if forget(); here.Err() == nil || len(id.waiting) != 0 {
			t.Errorf("%s: %v, %d waits when it is forgotten", name, here.Err(), len(id.waiting))
		}
		if over {
			continue
		}
		here, forget, _ = id.whileConnected(t.Context())
		id.mu.Lock()
		id.endWaits()
		id.mu.Unlock()
		if here.Err() == nil {
			t.Error("the wait goes on after the end of the connection")
		}
		forget()
	}
}

// An ID has a connection if the manager has one for it, or if the kernel or TCP makes one.
func TestIDsWithAConnection(t *testing.T) {
	for _, c := range []struct {
		of   *device // nil: not bound
		cmid bool
		conn connState
		want bool
	}{
		{nil, false, connNone, false}, {nil, false, connRequesting, false}, {new(device), false, connNone, false},
		{new(device), false, connRequesting, false}, {new(device), true, connNone, true},
		{new(device), true, connRequesting, true}, {&device{streams: true}, false, connNone, false},
		{&device{streams: true}, false, connRequesting, true}, {&device{kernel: true}, false, connNone, false},
		{&device{kernel: true}, false, connRequested, true},
	} {
		id := new(ID)
		id.dev, id.conn = c.of, c.conn
		if c.cmid {
			id.cmid = new(cm.ID)
		}
		if got := id.hasConnection(); got != c.want {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
		}
	}
}

// A report has a listener on all devices at those where it listens, and the counters in the order of their names.
func TestReportOfAListener(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var devices []*verbs.Device
	for i, a := range []netip.Addr{fuzzHere, fuzzThere} {
		dev, err := fab.NewDevice(string(rune('a'+i)), a)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, dev)
	}
	h := NewHost(devices...)
	l, err := h.CreateID(nil, PSTCP, nil)
	if err == nil {
		err = l.Listen(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	ended := l.unlistenOn(h.devices[1])
	l.mu.Unlock()
	giveBack(ended)
	r := control.Report{Devices: []control.Device{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	h.describe(&r)
	for i, want := range []int{1, 0, 0} {
		d := &r.Devices[i]
		sorted := slices.IsSortedFunc(d.CM, func(a, b control.Counter) int { return strings.Compare(a.Name, b.Name) })
		if len(d.CMIDs) != want || !sorted || (len(d.CM) > 0) != (i < 2) {
			t.Errorf("%s: %d IDs, want %d; %d counters, in order %v", d.Name, len(d.CMIDs), want, len(d.CM), sorted)
		}
	}
	if err := errors.Join(l.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// TestRequestIsKeptForItsAnswer: the request of a connection is kept while another one may follow it, and no longer.
func TestRequestIsKeptForItsAnswer(t *testing.T) {
	for in, kept := range map[connInput]bool{inConnect: true, inReply: false, inResponse: false, inRejected: false} {
		c := connection{conn: connRequesting, asked: &cm.ConnectParams{}}
		if in == inConnect {
			c.conn = connNone
		}
		if !c.step(in) || (c.asked != nil) != kept {
			t.Errorf("input %d: state %v, the request is kept: %v", in, c.conn, c.asked != nil)
		}
	}
}

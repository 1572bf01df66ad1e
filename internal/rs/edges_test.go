package rs

import "testing"

// Messages that are under way have ranges of the send buffer that do not overlap, also where it wraps around.
func TestSendBufferRangesAreDistinct(t *testing.T) {
	e, b := newEnd(Params{SQ: 64, RQ: 64, SendBuf: 100, RecvBuf: 10000}, 0),
		newEnd(Params{SQ: 64, RQ: 64, SendBuf: 100, RecvBuf: 10000}, 0)
	connect(e, b)
	owner := make([]int, 100) // the message that has the byte; 0 is free
	var sent []Data
	for id := 1; id <= 40; id++ {
		d, ok := e.NextData(30, MaxData, 0)
		if !ok || d.Buffered() != d.N {
			t.Fatalf("message %d: %+v, %v", id, d, ok)
		}
		for _, s := range d.Buf {
			for i := range s.Len {
				if at := s.Off + i; owner[at] != 0 {
					t.Fatalf("byte %d of message %d is also of message %d", at, id, owner[at])
				}
				owner[s.Off+i] = id
			}
		}
		if sent = append(sent, d); len(sent) == 3 {
			for _, s := range sent[0].Buf {
				clear(owner[s.Off : s.Off+s.Len])
			}
			e.OnSent(sent[0].Buffered())
			sent = sent[1:]
		}
	}
}

// Each reason alone keeps a control message and a keepalive back.
func TestControlMessagesWait(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(e *tend)
		ok   bool
	}{
		"nothing":      {func(*tend) {}, true},
		"not open":     {func(e *tend) { e.open = false }, false},
		"disconnected": {func(e *tend) { e.Disconnect() }, false},
		"the end told": {func(e *tend) { e.told = true }, false},
		"no slot":      {func(e *tend) { e.ctrl = CtrlSlots }, false},
		"one slot":     {func(e *tend) { e.ctrl = CtrlSlots - 1 }, true},
	} {
		e, _ := duo(0)
		e.Shutdown(false, true)
		c.stop(e)
		if _, ok := e.NextControl(); ok != c.ok {
			t.Errorf("%s: a control message: %v", name, ok)
		}
		e, _ = duo(0)
		c.stop(e)
		if ok := e.Keepalive(); ok != c.ok {
			t.Errorf("%s: a keepalive: %v", name, ok)
		}
	}
}

// What was received and not read is discarded when reading ends, so that the peer gets its memory back.
func TestW_RS_27_ShutdownDiscards(t *testing.T) {
	e, _ := duo(0)
	e.data1(t, 200)
	if e.Shutdown(false, true); e.Readable() != 200 {
		t.Errorf("%d bytes are left when sending ends, want 200", e.Readable())
	}
	if e.Shutdown(true, false); e.Readable() != 0 {
		t.Errorf("%d bytes are left when nobody reads", e.Readable())
	}
}

// One entry of the queue is room for a message; a peer without the flag has no room for maps.
func TestW_RS_22_LastSlotAndPeerWithoutMaps(t *testing.T) {
	e := withMap(t)
	if e.slots = 1; !e.CanPlace() {
		t.Error("no room with one entry of the queue")
	}
	a, b := newEnd(Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000}, 4),
		newEnd(Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000}, 4)
	if connect(a, b); a.MaxMaps() != 4 {
		t.Errorf("room for %d maps, want 4", a.MaxMaps())
	}
	b.data.Flags &^= FlagIOMap
	if a.Connect(b.data); a.MaxMaps() != 0 {
		t.Errorf("room for %d maps at a peer without maps", a.MaxMaps())
	}
}

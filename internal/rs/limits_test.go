package rs

import (
	"strings"
	"testing"
)

// duo makes two connected ends, with rings and buffers of 1000 bytes and 16 credits.
func duo(iomaps int) (a, b *tend) {
	a = newEnd(Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000}, iomaps)
	b = newEnd(Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000}, iomaps)
	connect(a, b)
	return a, b
}

func (e *tend) data1(t *testing.T, n int) {
	t.Helper()
	if err := e.OnMessage(Word(OpData, uint32(n)), uint32(n)); err != nil {
		t.Fatal(err)
	}
}

// refuses expects that a message of n bytes is refused.
func (e *tend) refuses(t *testing.T, n int, why string) {
	t.Helper()
	if err := e.OnMessage(Word(OpData, uint32(n)), uint32(n)); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%d bytes: %v, want %q", n, err, why)
	}
}

// Unread data occupies the ring, and no message goes beyond the ring's end.
func TestW_RS_14_PeerStaysInTheRing(t *testing.T) {
	e, _ := duo(0)
	e.data1(t, 499)
	e.refuses(t, 2, "1 are free")
	e, _ = duo(0)
	e.controls() // the second half is free too
	e.data1(t, 900)
	e.Consume(900)
	e.controls() // and the first half again
	e.refuses(t, 101, "beyond the end")
	e, _ = duo(0)
	e.controls()
	e.data1(t, 900)
	e.Consume(900)
	e.controls()
	e.data1(t, 100)
	e.data1(t, 500)
	e.refuses(t, 1, "0 are free")
}

// Messages without data, and those after the end of reading, return their credits and their room at once.
func TestW_RS_20_UnreadMessages(t *testing.T) {
	e, _ := duo(0)
	e.controls()
	e.wire = nil
	e.data1(t, 5)
	for range 8 {
		e.data1(t, 0) // after unread data
	}
	if e.controls(); len(e.wire) != 0 {
		t.Errorf("credits were given for what was not read: %v", e.wire)
	}
	e.Consume(5)
	e.controls()
	if len(e.wire) != 1 || e.wire[0].word != Word(OpSGL, 16+9) {
		t.Errorf("after reading: %+v", e.wire)
	}
	for range 40 {
		e.data1(t, 0)
		e.controls()
		for range e.wire {
			e.OnControlSent()
		}
		e.wire = nil
	}
	if e.consumed != 49 {
		t.Errorf("%d messages were consumed of 49", e.consumed)
	}

	e, _ = duo(0)
	e.controls()
	e.wire = nil
	e.data1(t, 300)
	e.Shutdown(true, false)
	e.data1(t, 200)
	e.controls()
	if e.Readable() != 0 || len(e.wire) != 1 || len(e.wire[0].payload) != SGELen {
		t.Errorf("%d bytes are left of what nobody reads, %+v", e.Readable(), e.wire)
	}
}

// A peer's table may have more entries than this side's: all of them are used in turn.
func TestW_RS_16_LongerTable(t *testing.T) {
	e, b := newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
		0,
	), newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
		0,
	)
	b.data.Table.Length = 3
	connect(e, b)
	for i, entry := range []uint64{1, 2, 0, 1, 2} {
		c, ok := e.NextControl()
		if !ok || c.Remote.Addr != b.data.Table.Addr+entry*SGELen {
			t.Errorf("update %d goes to %#x, %v", i, c.Remote.Addr, ok)
		}
		e.OnControlSent()
		e.data1(t, 500)
		e.Consume(500)
	}
}

// CanSend requires room in each of queue, credits, buffer and the peer's memory.
func TestR_POLL_02_CanSend(t *testing.T) {
	for name, fill := range map[string]func(e *tend){
		"queue":       func(e *tend) { e.slots = 0 },
		"credits":     func(e *tend) { e.limit = e.seq },
		"buffer":      func(e *tend) { e.bufUsed = e.bufLen },
		"peer's ring": func(e *tend) { e.target[0].Length = 0 },
	} {
		e, _ := duo(0)
		if !e.CanSend() {
			t.Error("there is no room at first")
		}
		fill(e)
		if _, ok := e.NextData(100, MaxData, 0); e.CanSend() || ok {
			t.Errorf("no %s: it can send, %v", name, ok)
		}
	}
}

// withMap makes an end that knows an IO map of 100 bytes at offset 1000, with a map of its own pending.
func withMap(t *testing.T) *tend {
	e, _ := duo(1)
	copy(
		e.table[TableEntries*SGELen:],
		(&IOMap{Offset: 1000, SGE: SGE{Addr: 0x5000, Key: 5, Length: 100}}).Append(nil, e.peer.Order()),
	)
	if err := e.OnMessage(Word(OpIOMap, 0), IOMapLen); err != nil {
		t.Fatal(err)
	}
	e.SetMap(0, IOMap{Offset: 7})
	return e
}

// Maps and writes to them wait for room in the queue, maps also for credits; nothing is sent after this side's end
// of sending or the end of the connection.
func TestW_RS_22_W_RS_24_IOMapsWaitForRoom(t *testing.T) {
	for name, c := range map[string]struct {
		fill                func(e *tend)
		mapped, write, room bool
	}{
		"all":           {func(*tend) {}, true, true, true},
		"no queue":      {func(e *tend) { e.slots = 0 }, false, false, false},
		"no credits":    {func(e *tend) { e.limit = e.seq }, false, true, false},
		"full buffer":   {func(e *tend) { e.bufUsed = e.bufLen }, true, false, true},
		"no stream":     {func(e *tend) { e.target[0].Length = 0 }, true, true, true},
		"write is shut": {func(e *tend) { e.Shutdown(false, true) }, true, false, true},
		"it is over":    {func(e *tend) { e.Disconnect() }, false, false, true},
	} {
		e := withMap(t)
		c.fill(e)
		if got := e.CanPlace(); got != c.room {
			t.Errorf("%s: room %v", name, got)
		}
		slots, seq := e.slots, e.seq
		_, mapped := e.NextMap()
		if mapped != c.mapped || mapped && (e.slots != slots-1 || e.seq != seq+1) {
			t.Errorf("%s: the map is told: %v, %d slots of %d, message %d of %d", name, mapped, e.slots, slots, e.seq, seq)
		}
		e = withMap(t)
		c.fill(e)
		seq = e.seq
		if d, found, ok := e.NextWrite(50, 1000, MaxData, 0); !found || ok != c.write || e.seq != seq ||
			ok && (d.N != 50 || d.Remote.Addr != 0x5000) {
			t.Errorf("%s: it writes: %v %v %+v", name, found, ok, d)
		}
	}
}

// A peer with few credits accepts at least one map.
func TestW_RS_22_Budget(t *testing.T) {
	for credits, want := range map[uint16]int{0: 1, 1: 1, 2: 1, 16: 8, 65535: 32767} {
		e, b := newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
			1,
		), newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
			1,
		)
		b.data.Credits = credits
		connect(e, b)
		if got := e.MapBudget(); got != want {
			t.Errorf("%d credits: %d maps, want %d", credits, got, want)
		}
	}
}

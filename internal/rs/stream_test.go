package rs

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// tend is a Stream with its memory.
type tend struct {
	*Stream
	ring, buf, table []byte
	data             ConnData
	wire             []wireMsg // to the peer
	said             []uint32  // received control messages
	t                *testing.T
}

// wireMsg is a WRITE in flight.
type wireMsg struct {
	word    uint32
	at      uint64
	key     uint32
	payload []byte
	kind    byte // d, c, m
	freed   int
}

const (
	ringKey  = 1
	tableKey = 2
)

func newEnd(p Params, iomaps int) *tend {
	e := &tend{ring: make([]byte, p.RecvBuf), buf: make([]byte, p.SendBuf), table: make([]byte, TableLen(iomaps))}
	const ringAddr, tableAddr = 0x10000, 0x900000
	p.Table, p.Ring = e.table, SGE{Addr: ringAddr, Key: ringKey}
	e.Stream = New(p)
	e.data = ConnData{
		Flags: HostFlags(), Credits: uint16(p.RQ), IOMaps: Scale(iomaps), Table: SGE{tableAddr, tableKey, TableEntries},
		Data: SGE{ringAddr, ringKey, uint32(p.RecvBuf / 2)},
	}
	return e
}

func connect(a, b *tend) {
	a.Connect(b.data)
	b.Connect(a.data)
}

// place writes a WRITE into the memory of its receiver, as the receiver's device does.
func (e *tend) place(t *testing.T, m wireMsg) {
	t.Helper()
	if len(m.payload) == 0 {
		return
	}
	mem, base := e.ring, uint64(0x10000)
	if m.key == tableKey {
		mem, base = e.table, 0x900000
	}
	off := m.at - base
	if off > uint64(len(mem)) || uint64(len(m.payload)) > uint64(len(mem))-off {
		t.Fatalf("a WRITE of %d bytes at %#x is outside the memory of key %d", len(m.payload), m.at, m.key)
	}
	if m.key == ringKey {
		// Unread data must not be overwritten.
		for i := range e.queued {
			if p := (e.head + i) % len(e.ring); uint64(p) >= off && uint64(p) < off+uint64(len(m.payload)) {
				t.Fatalf("a WRITE at %d of %d bytes overwrites unread data", off, len(m.payload))
			}
		}
	}
	copy(mem[off:], m.payload)
}

// write posts DATA messages of b while there is room, and returns the number of bytes.
func (e *tend) write(b []byte, size, inline int) (n int) {
	for n < len(b) {
		d, ok := e.NextData(len(b)-n, size, inline)
		if !ok {
			return n
		}
		part := b[n : n+d.N]
		n += d.N
		if d.Buffered() > 0 {
			rest := part
			for _, s := range d.Buf {
				rest = rest[copy(e.buf[s.Off:s.Off+s.Len], rest):]
			}
			part = nil
			for _, s := range d.Buf {
				part = append(part, e.buf[s.Off:s.Off+s.Len]...)
			}
		}
		e.wire = append(e.wire, wireMsg{d.Word, d.Remote.Addr, d.Remote.Key, bytes.Clone(part), 'd', d.Buffered()})
	}
	return n
}

func (e *tend) controls() {
	for {
		c, ok := e.NextControl()
		if !ok {
			return
		}
		e.wire = append(e.wire, wireMsg{c.Word, c.Remote.Addr, c.Remote.Key, bytes.Clone(c.Payload[:c.N]), 'c', 0})
	}
}

// deliver moves the first message from e to its peer, and completes it at e.
func (e *tend) deliver(t *testing.T, to *tend) {
	t.Helper()
	m := e.wire[0]
	e.wire = e.wire[1:]
	to.place(t, m)
	if err := to.OnMessage(m.word, uint32(len(m.payload))); err != nil {
		t.Fatalf("%#08x: %v", m.word, err)
	}
	if m.kind == 'c' {
		e.OnControlSent()
	} else {
		e.OnSent(m.freed)
	}
}

// read consumes up to n bytes.
func (e *tend) read(n int) (b []byte) {
	for n > 0 {
		s := e.Peek(0, n)
		if s.Len == 0 {
			return b
		}
		b = append(b, e.ring[s.Off:s.Off+s.Len]...)
		e.Consume(s.Len)
		n -= s.Len
	}
	return b
}

// Any order of writing, delivering, completing and reading delivers every byte in order and overwrites nothing, for
// all sizes.
func TestW_RS_16_RingIsNeverOverwritten(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := func() Params {
			return Params{SQ: 16 + r.IntN(8), RQ: 16 + r.IntN(8), SendBuf: 1 + r.IntN(3000), RecvBuf: 2 * (1 + r.IntN(2000))}
		}
		a, b := newEnd(p(), 0), newEnd(p(), 0)
		connect(a, b)
		ends, sent, got := [2]*tend{a, b}, [2]int{}, [2]int{}
		at := func(dir, i int) byte { return byte(i*7 + i>>8 + dir*13) }
		for range 4000 {
			i := r.IntN(2)
			me, peer := ends[i], ends[1-i]
			switch r.IntN(4) {
			case 0:
				msg := make([]byte, 1+r.IntN(1<<r.IntN(12)))
				for k := range msg {
					msg[k] = at(i, sent[i]+k)
				}
				sent[i] += me.write(msg, 1+r.IntN(4000), r.IntN(100))
			case 1:
				for _, v := range me.read(1 + r.IntN(1<<r.IntN(12))) {
					if v != at(1-i, got[i]) {
						t.Fatalf("seed %d: byte %d is wrong", seed, got[i])
					}
					got[i]++
				}
			case 2:
				me.controls()
			default:
				for range min(len(me.wire), 1+r.IntN(4)) {
					me.deliver(t, peer)
				}
			}
		}
		// In the end everything arrives.
		for range 10 {
			for i, me := range ends {
				me.controls()
				for len(me.wire) > 0 {
					me.deliver(t, ends[1-i])
				}
				got[i] += len(me.read(1 << 30))
			}
		}
		if got[0] != sent[1] || got[1] != sent[0] || sent[0] == 0 {
			t.Fatalf("seed %d: sent %v, got %v", seed, sent, got)
		}
	}
}

// More messages than a 16-bit counter can count: credits are absolute and wrap around.
func TestW_RS_18_CreditsWrapAround(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 24, RQ: 16, SendBuf: 64, RecvBuf: 64},
		0,
	), newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 64},
		0,
	)
	connect(a, b)
	for i := range 140000 {
		msg := []byte{byte(i), byte(i >> 8)} // does not end in the middle of the ring
		if a.write(msg, 64, 64) != len(msg) {
			t.Fatalf("message %d: no credits, with everything read", i)
		}
		a.deliver(t, b)
		if got := b.read(len(msg)); !bytes.Equal(got, msg) {
			t.Fatalf("message %d: read %v", i, got)
		}
		for b.controls(); len(b.wire) > 0; {
			b.deliver(t, a)
		}
	}
	// Here too, exactly as many messages can be sent as the peer has room for.
	n := 0
	for a.write([]byte{1}, 64, 64) == 1 {
		n++
	}
	if n < 8 || n > 16 {
		t.Errorf("%d messages without anybody reading, of 16", n)
	}
}

// The first update grants the second half and goes to entry 1; then they alternate.
func TestW_RS_17_FirstUpdates(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 16, RQ: 20, SendBuf: 1000, RecvBuf: 200},
		0,
	), newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 200},
		0,
	)
	connect(a, b)
	c, ok := a.NextControl()
	want := SGE{0x10000 + 100, ringKey, 100}
	if !ok || c.Word != Word(OpSGL, 20) || c.Remote.Addr != b.data.Table.Addr+SGELen || c.N != SGELen ||
		ParseSGE(c.Payload[:], binary.NativeEndian) != want {
		t.Errorf("%+v %v", c, ok)
	}
	if _, ok := a.NextControl(); ok {
		t.Error("a second update without a reason")
	}
	// DATA may be sent before it.
	n := b.write(make([]byte, 150), 1000, 0)
	if n != 100 { // the first half only
		t.Errorf("%d bytes before the update", n)
	}
	b.deliver(t, a)
	a.read(100)
	if c, ok = a.NextControl(); !ok || c.Remote.Addr != b.data.Table.Addr ||
		ParseSGE(c.Payload[:], binary.NativeEndian).Addr != 0x10000 ||
		c.Word != Word(OpSGL, 21) {
		t.Errorf("the second update: %+v %v", c, ok)
	}
}

// Messages do not span two SGEs, and do not exceed 65536 bytes.
func TestW_RS_13_W_RS_14_MessagesStayInTheirSGE(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 64, RQ: 64, SendBuf: 1 << 20, RecvBuf: 300000},
		0,
	), newEnd(
		Params{SQ: 64, RQ: 64, SendBuf: 1, RecvBuf: 300000},
		0,
	)
	connect(a, b)
	b.controls()
	b.deliver(t, a)
	a.write(make([]byte, 300000), 1<<20, 0)
	var sizes []int
	for _, m := range a.wire {
		sizes = append(sizes, len(m.payload))
	}
	want := []int{65536, 65536, 150000 - 2*65536, 65536, 65536, 150000 - 2*65536}
	if len(sizes) != len(want) {
		t.Fatalf("%v, want %v", sizes, want)
	}
	for i := range want {
		if sizes[i] != want[i] {
			t.Errorf("%v, want %v", sizes, want)
		}
	}
}

// Updates are sent when half of the ring is free, or half of the credits are used.
func TestW_RS_20_WhenUpdatesAreSent(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 64, RQ: 16, SendBuf: 1000, RecvBuf: 10000},
		0,
	), newEnd(
		Params{SQ: 64, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
		0,
	)
	connect(a, b)
	a.controls()
	a.deliver(t, b)
	for i := 1; i <= 40; i++ {
		if b.write([]byte{1}, 1, 0) != 1 {
			t.Fatalf("message %d: no credits", i)
		}
		b.deliver(t, a)
		a.read(1)
		c, ok := a.NextControl()
		if due := i%8 == 0; ok != due || ok && (c.N != 0 || c.Word != Word(OpSGL, uint32(i+16))) {
			t.Fatalf("message %d: %v %+v", i, ok, c)
		}
		if ok {
			a.OnControlSent()
			if err := b.OnMessage(c.Word, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Without credits, queue entries or memory of the peer nothing is sent; four entries are reserved for control
// messages.
func TestW_RS_21_LimitsOfSending(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 10, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
		0,
	), newEnd(
		Params{SQ: 16, RQ: 4, SendBuf: 1000, RecvBuf: 1000},
		0,
	)
	connect(a, b)
	count := func(e *tend) (n int) {
		for e.write([]byte{1}, 1, 0) == 1 {
			n++
		}
		return n
	}
	if n := count(a); n != 4 || a.CanSend() { // the peer's credits
		t.Errorf("%d messages with 4 credits", n)
	}
	if n := count(b); n != 12 || b.CanSend() { // 16 entries, 4 of them reserved
		t.Errorf("%d messages with 16 entries", n)
	}
	for range 4 {
		if !a.Keepalive() {
			t.Error("no place for a control message")
		}
	}
	if a.Keepalive() {
		t.Error("a fifth control message")
	}
}

// The receiver refuses each protocol violation, and its state does not change.
func TestProtocolViolations(t *testing.T) {
	for name, lie := range map[string]struct {
		say  func(e *tend) error
		want string
	}{
		"more data than is free": {func(e *tend) error { return e.OnMessage(Word(OpData, 501), 501) }, "500 are free"},
		"announced and written":  {func(e *tend) error { return e.OnMessage(Word(OpData, 10), 11) }, "announced"},
		"huge": {func(e *tend) error { return e.OnMessage(Word(OpData, dataMask), dataMask) },
			"are free"},
		"unknown operation 1":         {func(e *tend) error { return e.OnMessage(Word(1, 0), 0) }, "unknown"},
		"unknown operation 2":         {func(e *tend) error { return e.OnMessage(Word(2, 0), 0) }, "unknown"},
		"unknown control message":     {func(e *tend) error { return e.OnMessage(Word(OpCtrl, 3), 0) }, "unknown"},
		"entry of another size":       {func(e *tend) error { return e.OnMessage(Word(OpSGL, 1), 15) }, "15 bytes"},
		"entry that was not written":  {func(e *tend) error { return e.OnMessage(Word(OpSGL, 1), 16) }, "empty or in use"},
		"IO map that there is not":    {func(e *tend) error { return e.OnMessage(Word(OpIOMap, 2), 24) }, "IO map 2"},
		"IO map of another size":      {func(e *tend) error { return e.OnMessage(Word(OpIOMap, 0), 16) }, "IO map 0"},
		"IO map of the largest index": {func(e *tend) error { return e.OnMessage(Word(OpIOMap, dataMask), 24) }, "IO map"},
		"more messages than credits": {func(e *tend) (err error) {
			for range 17 {
				err = e.OnMessage(Word(OpData, 1), 1)
			}
			return err
		}, "credits"},
	} {
		e, b := newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
			2,
		), newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
			0,
		)
		connect(e, b)
		if err := lie.say(e); err == nil || !strings.Contains(err.Error(), lie.want) {
			t.Errorf("%s: %v, want %q", name, err, lie.want)
		}
	}
}

// The peer's memory may be larger than an int of this machine, such as 2 GiB on 32 bits.
func TestPeerWithMuchMemory(t *testing.T) {
	for _, length := range []uint32{1 << 31, 1<<32 - 1} {
		e, b := newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
			1,
		), newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 1000, RecvBuf: 1000},
			0,
		)
		b.data.Data.Length = length
		connect(e, b)
		if d, ok := e.NextData(300, MaxData, 0); !ok || d.N != 300 {
			t.Errorf("DATA: %d bytes, %v", d.N, ok)
		}
		copy(
			e.table[TableEntries*SGELen:],
			(&IOMap{Offset: 7, SGE: SGE{Addr: 0x5000, Length: length}}).Append(nil, binary.NativeEndian),
		)
		if err := e.OnMessage(Word(OpIOMap, 0), IOMapLen); err != nil {
			t.Fatal(err)
		}
		if d, found, ok := e.NextWrite(300, 8, MaxData, 0); !found || !ok || d.N != 300 || d.Remote.Addr != 0x5001 {
			t.Errorf("WRITE: %+v, %v, %v", d, found, ok)
		}
		if d, found, ok := e.NextWrite(300, 7+uint64(length)-2, MaxData, 0); !found || !ok || d.N != 2 {
			t.Errorf("WRITE at the end: %+v, %v, %v", d, found, ok)
		}
	}
}

// Invalid messages neither panic nor make the stream read beyond its buffers.
func FuzzOnMessage(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1, 0xe0, 0, 0, 0, 0, 0x80, 0, 0, 9, 16})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, peer := newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
			3,
		), newEnd(
			Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
			0,
		)
		connect(e, peer)
		for ; len(b) >= 5; b = b[5:] {
			written := uint32(b[4])
			copy(e.table, b)
			if e.OnMessage(binary.BigEndian.Uint32(b), written) != nil {
				break
			}
			if e.Readable() > len(e.ring) {
				t.Fatalf("%d bytes to read", e.Readable())
			}
			e.read(int(b[3]))
			e.write(make([]byte, b[4]), 64, 0)
			e.controls()
		}
	})
}

// The control messages of each way of ending, and the state of both ends afterwards.
func TestW_RS_27_W_RS_28_Endings(t *testing.T) {
	type state struct{ eof, disconnected bool }
	for name, c := range map[string]struct {
		play           func(a, b *tend)
		ofA, ofB       []uint32
		stateA, stateB state
	}{
		"both at once": {func(a, b *tend) { a.Shutdown(true, true) }, []uint32{CtrlDisconnect}, nil, state{true, false},
			state{true, true}},
		"writing only": {func(a, b *tend) { a.Shutdown(false, true) }, []uint32{CtrlShutdown}, nil, state{}, state{true,
			false}},
		"reading only": {func(a, b *tend) { a.Shutdown(true, false) }, nil, nil, state{true, false}, state{}},
		"writing twice": {func(a, b *tend) { a.Shutdown(false, true); a.controls(); a.Shutdown(false, true) },
			[]uint32{CtrlShutdown}, nil, state{}, state{true, false}},
		"reading then writing": {func(a, b *tend) { a.Shutdown(true, false); a.Shutdown(false, true) },
			[]uint32{CtrlDisconnect}, nil, state{true, false},
			state{true, true}},
		"writing then reading": {func(a, b *tend) { a.Shutdown(false, true); a.controls(); a.Shutdown(true, false) },
			[]uint32{CtrlShutdown, CtrlDisconnect}, nil,
			state{true, false}, state{true, true}},
		"one after the other": {func(a, b *tend) { a.Shutdown(false, true); a.flush(b); b.Shutdown(false, true) },
			[]uint32{CtrlShutdown}, []uint32{CtrlDisconnect},
			state{true, true}, state{true, false}},
		"crossing": {func(a, b *tend) { a.Shutdown(false, true); b.Shutdown(false, true) }, []uint32{CtrlShutdown},
			[]uint32{CtrlShutdown},
			state{true, true}, state{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(
				Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
				0,
			), newEnd(
				Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
				0,
			)
			connect(a, b)
			a.t, b.t = t, t
			a.flush(b)
			b.flush(a)
			a.said, b.said = nil, nil
			c.play(a, b)
			a.controls()
			b.controls()
			a.flush(b)
			b.flush(a)
			if !equal(a.said, c.ofA) || !equal(b.said, c.ofB) {
				t.Errorf("said %v and %v, want %v and %v", a.said, b.said, c.ofA, c.ofB)
			}
			if got := (state{a.EOF(), a.Disconnected()}); got != c.stateA {
				t.Errorf("a: %+v, want %+v", got, c.stateA)
			}
			if got := (state{b.EOF(), b.Disconnected()}); got != c.stateB {
				t.Errorf("b: %+v, want %+v", got, c.stateB)
			}
		})
	}
}

func equal(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// flush delivers everything, and records the control messages.
func (e *tend) flush(to *tend) {
	e.controls()
	for len(e.wire) > 0 {
		if op, data := Split(e.wire[0].word); op == OpCtrl {
			e.said = append(e.said, data)
		}
		e.deliver(e.t, to)
	}
}

// Data that was queued before the end is still readable.
func TestR_IO_03_QueuedDataOutlivesTheEnd(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
		0,
	), newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
		0,
	)
	connect(a, b)
	a.t, b.t = t, t
	a.write([]byte("last words"), 64, 0)
	a.Shutdown(true, true)
	a.flush(b)
	if b.EOF() || !b.Disconnected() {
		t.Error("the end hides the data, or is not there")
	}
	if got := b.read(100); string(got) != "last words" || !b.EOF() {
		t.Errorf("%q", got)
	}
	if _, ok := b.NextControl(); ok {
		t.Error("a message to a peer that has gone")
	}
	if _, ok := b.NextData(1, 1, 0); ok {
		t.Error("data to a peer that has gone")
	}
}

// IO maps are sent before later data, cost a credit that is never returned, and are found by offset.
func TestW_RS_22_W_RS_25_IOMaps(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 64, RQ: 16, SendBuf: 64, RecvBuf: 32},
		0,
	), newEnd(
		Params{SQ: 64, RQ: 16, SendBuf: 64, RecvBuf: 32},
		3,
	)
	connect(a, b)
	if a.MaxMaps() != 3 || b.MaxMaps() != 0 || a.MapBudget() != 8 {
		t.Error(a.MaxMaps(), b.MaxMaps(), a.MapBudget())
	}
	a.SetMap(1, IOMap{1000, SGE{0x5000, 9, 100}})
	m, ok := a.NextMap()
	if !ok || m.Word != Word(OpIOMap, 1) || m.Remote.Addr != b.data.Table.Addr+2*SGELen+IOMapLen {
		t.Fatalf("%+v %v", m, ok)
	}
	b.place(t, wireMsg{at: m.Remote.Addr, key: m.Remote.Key, payload: m.Payload[:]})
	if err := b.OnMessage(m.Word, IOMapLen); err != nil {
		t.Fatal(err)
	}
	a.OnSent(0)
	n := 0
	for a.write([]byte{1}, 1, 64) == 1 {
		n++
	}
	if n != 15 {
		t.Errorf("%d messages after the map, want 15", n)
	}
	for _, c := range []struct {
		offset uint64
		n      int
		found  bool
		at     uint64
		len    int
	}{{999, 1, false, 0, 0}, {1000, 10, true, 0x5000, 10}, {1090, 20, true, 0x5000 + 90, 10}, {1100, 1, false, 0, 0},
		{0, 1, false, 0, 0}, {1 << 63, 1, false, 0, 0}} {
		d, found, ok := b.NextWrite(c.n, c.offset, MaxData, 0)
		if found != c.found || ok != c.found || d.N != c.len || d.Remote.Addr != c.at {
			t.Errorf("offset %d: %+v %v %v", c.offset, d, found, ok)
		}
		if ok {
			b.OnSent(d.Buffered())
		}
	}
	a.SetMap(2, IOMap{})
	a.DropMap(2)
	if a.MapsPending() {
		t.Error("a map that was taken back is pending")
	}
}

// A pending SHUTDOWN is still sent when the peer's arrives: otherwise the peer would wait for ever.
func TestW_RS_28_PendingShutdown(t *testing.T) {
	a, b := newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
		0,
	), newEnd(
		Params{SQ: 16, RQ: 16, SendBuf: 64, RecvBuf: 32},
		0,
	)
	connect(a, b)
	a.t, b.t = t, t
	a.flush(b)
	b.flush(a)
	for a.Keepalive() { // until no slot for a control message is left
	}
	a.Shutdown(false, true)
	b.Shutdown(false, true)
	b.flush(a)
	if !a.EOF() || a.Over() {
		t.Errorf("before a has told it: EOF %v, over %v", a.EOF(), a.Over())
	}
	for range CtrlSlots {
		a.OnControlSent()
	}
	a.said = nil
	a.flush(b)
	if !equal(a.said, []uint32{CtrlDisconnect}) || !b.EOF() || !a.Over() || !b.Over() {
		t.Errorf("said %v; b's EOF %v, over %v and %v", a.said, b.EOF(), a.Over(), b.Over())
	}
}

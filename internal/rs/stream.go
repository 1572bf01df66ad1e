package rs

import (
	"encoding/binary"
	"fmt"
)

// CtrlSlots is the number of send queue entries reserved for control messages (W-RS-21).
const CtrlSlots = 4

// MaxData is the length of the largest DATA message in bytes (W-RS-14).
const MaxData = 65536

// Params are the sizes of a stream.
type Params struct {
	SQ      int    // entries of the send queue, more than CtrlSlots
	RQ      int    // messages that the peer may have in flight: its credits
	SendBuf int    // bytes of the send buffer
	RecvBuf int    // bytes of the receive buffer, even
	Table   []byte // memory for the entries that the peer writes: TableLen bytes
	Ring    SGE    // the receive buffer as sent to the peer; Length is ignored
}

// Stream is the state of one end of a connection. It is not safe for concurrent use.
type Stream struct {
	sender
	receiver
	open bool // connection data was exchanged
	end
	entry [IOMapLen]byte // buffer for encoding table entries: a local one would be allocated on the heap
}

// end is the state of the connection's end.
type end struct {
	readShut, writeShut bool // by this side
	peerShut            bool // the peer sends no more
	disconnected        bool
	gone                bool   // the peer receives no more either
	toSend              uint32 // the pending control message; noCtrl: none
	told                bool   // DISCONNECT was posted
}

// noCtrl is not the value of any control message.
const noCtrl = ^uint32(0)

// New makes the state of an end whose peer's connection data is not known yet.
func New(p Params) *Stream {
	s := &Stream{end: end{toSend: noCtrl}}
	s.slots, s.bufLen = p.SQ-CtrlSlots, p.SendBuf
	half := p.RecvBuf / 2
	s.half, s.table, s.rq, s.ring = half, p.Table, p.RQ, p.Ring
	// The second half counts as freed, so that it is granted first (W-RS-17).
	s.published, s.freed, s.freeAt, s.remoteEntry = half, half, half, 1
	s.update = uint16(p.RQ / 2)
	s.nextEntry = 1
	return s
}

// Connect sets the peer's connection data.
func (s *Stream) Connect(peer ConnData) {
	s.peer, s.open = peer, true
	s.limit = peer.Credits
	s.target[0] = peer.Data
	s.maps = make([]IOMap, (len(s.table)-TableEntries*SGELen)/IOMapLen)
}

// OnMessage processes a received message: the word of its immediate data and the number of bytes written. An error
// reports a protocol violation of the peer.
func (s *Stream) OnMessage(word, written uint32) error {
	op, data := Split(word)
	switch {
	case op == OpData && data == written:
		return s.onData(int(data))
	case op == OpData:
		return fmt.Errorf("a message of %d bytes was announced as one of %d", written, data)
	case op == OpSGL:
		return s.onSGL(uint16(data), written)
	case op == OpIOMap:
		return s.onIOMap(data, written)
	case op == OpCtrl && data == CtrlDisconnect:
		s.Disconnect()
	case op == OpCtrl && data == CtrlShutdown:
		s.onShutdown()
	case op == OpCtrl && data == CtrlKeepalive:
	default:
		return fmt.Errorf("unknown message word %#08x", word)
	}
	return nil
}

// OnWord processes a message word that came as data, after a plain WRITE of unknown length (W-RS-10). An entry of the
// table is new if it is not zero: it is cleared when it is read.
func (s *Stream) OnWord(b []byte) error {
	word := binary.LittleEndian.Uint32(b)
	if s.peer.Order() == binary.BigEndian {
		word = binary.BigEndian.Uint32(b)
	}
	op, written := Split(word)
	entry := s.table[s.nextEntry*SGELen:][:SGELen]
	switch {
	case op == OpIOMap:
		written = IOMapLen
	case op != OpSGL:
	case s.target[s.nextEntry].Length == 0 && ParseSGE(entry, binary.NativeEndian).Length != 0:
		written = SGELen
		defer clear(entry)
	default:
		written = 0
	}
	return s.OnMessage(word, written)
}

// onShutdown processes the peer's end of sending. If this side ended sending before, the connection is over,
// although the last data may still be in flight; if the peer was not informed yet, it is sent a DISCONNECT.
func (s *Stream) onShutdown() {
	s.peerShut = true
	switch {
	case s.toSend == CtrlShutdown:
		s.toSend = CtrlDisconnect
	case s.writeShut && !s.told:
		s.disconnected = true
	}
}

// onSGL processes a new credit limit and the table entry that came with it.
func (s *Stream) onSGL(limit uint16, written uint32) error {
	s.limit = limit
	switch written {
	case 0:
		return nil
	case SGELen:
	default:
		return fmt.Errorf("table entry of %d bytes: must be %d", written, SGELen)
	}
	i := s.nextEntry
	e := ParseSGE(s.table[i*SGELen:], binary.NativeEndian)
	if e.Length == 0 || s.target[i].Length != 0 {
		return fmt.Errorf("entry %d of the table, the next one, is empty or in use", i)
	}
	s.target[i] = e
	s.nextEntry = (i + 1) % TableEntries
	return nil
}

// onIOMap processes the peer's new or changed IO map.
func (s *Stream) onIOMap(i, written uint32) error {
	if int64(i) >= int64(len(s.maps)) || written != IOMapLen {
		return fmt.Errorf("%d bytes for IO map %d: there are %d maps of %d bytes", written, i, len(s.maps), IOMapLen)
	}
	s.maps[i] = ParseIOMap(s.table[TableEntries*SGELen+int(i)*IOMapLen:], binary.NativeEndian)
	return nil
}

// Control is a control message to post: a WRITE with immediate of Payload to Remote.
type Control struct {
	Word    uint32
	Remote  SGE // Addr and Key, if there is a payload
	N       int // bytes of Payload
	Payload [SGELen]byte
}

// NextControl returns the next control message to post; ok is false if there is none, or no slot for it.
func (s *Stream) NextControl() (c Control, ok bool) {
	if !s.open || s.disconnected || s.told || s.ctrl == CtrlSlots {
		return c, false
	}
	switch {
	case s.freed >= s.half || int16(s.consumed-s.update) >= 0:
		c = s.giveCredits()
	case s.toSend != noCtrl:
		c.Word = Word(OpCtrl, s.toSend)
		s.told = s.toSend == CtrlDisconnect
		s.toSend = noCtrl
	default:
		return c, false
	}
	s.ctrl++
	return c, true
}

// Keepalive accounts for a keepalive message, and reports whether there was a slot for it.
func (s *Stream) Keepalive() bool {
	if !s.open || s.disconnected || s.told || s.ctrl == CtrlSlots {
		return false
	}
	s.ctrl++
	return true
}

// OnControlSent returns the slot of a completed control message.
func (s *Stream) OnControlSent() { s.ctrl-- }

// Shutdown ends receiving, sending or both (W-RS-27).
func (s *Stream) Shutdown(read, write bool) {
	ended, silent := s.writeShut && s.readEnded(), s.writeShut
	s.readShut, s.writeShut = s.readShut || read, s.writeShut || write
	switch {
	case ended || s.disconnected:
	case s.writeShut && s.readEnded():
		s.toSend = CtrlDisconnect
	case write && !silent:
		s.toSend = CtrlShutdown
	}
	if s.readShut {
		s.Discard()
	}
}

func (s *Stream) readEnded() bool { return s.readShut || s.peerShut }

// Disconnect ends the connection for a reason other than a message (W-RS-30).
func (s *Stream) Disconnect() { s.disconnected, s.gone = true, true }

// PeerGone reports whether the peer receives no more: nothing has to be delivered to it.
func (s *Stream) PeerGone() bool { return s.gone }

// Disconnected reports whether the connection has ended. Data received before is still readable.
func (s *Stream) Disconnected() bool { return s.disconnected }

// Over reports whether both sides know that the connection has ended, so that messages of the peer can be ignored:
// this side's DISCONNECT was acknowledged, or the peer's has arrived and this side sends no more either, or the
// SHUTDOWN of each side has arrived (W-RS-29).
func (s *Stream) Over() bool {
	return s.told && s.Idle() || s.disconnected && s.writeShut && (s.gone || s.Idle())
}

// EOF reports whether no data is readable and no more will arrive.
func (s *Stream) EOF() bool { return s.readShut || s.queued == 0 && (s.peerShut || s.disconnected) }

// PeerShut reports whether the peer sends no more. Data received before may be readable.
func (s *Stream) PeerShut() bool { return s.peerShut || s.disconnected }

// ReadShut reports whether this side has ended reading.
func (s *Stream) ReadShut() bool { return s.readShut }

// WriteShut reports whether this side has ended sending.
func (s *Stream) WriteShut() bool { return s.writeShut }

// Buffered returns how many bytes of the send buffer the peer has not acknowledged.
func (s *Stream) Buffered() int { return s.bufUsed }

// Idle reports whether no message is in flight or waits to be posted.
func (s *Stream) Idle() bool {
	return s.ctrl == 0 && s.inFlight == 0 && (s.toSend == noCtrl || s.disconnected)
}

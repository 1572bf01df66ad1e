package rs

import (
	"encoding/binary"
	"fmt"
)

// CtrlSlots is how many entries of the send queue are kept for control messages (W-RS-21).
const CtrlSlots = 4

// MaxData is the largest DATA message (W-RS-14).
const MaxData = 65536

// Params are the sizes of a stream.
type Params struct {
	SQ      int    // entries of the send queue, more than CtrlSlots
	RQ      int    // messages that the peer may have under way: its credits
	SendBuf int    // bytes of the send buffer
	RecvBuf int    // bytes of the receive buffer, even
	Table   []byte // memory that the peer writes its entries to: TableLen
	Ring    SGE    // the receive buffer as the peer is told it; Length does not matter
}

// Stream is the state of one end of a connection. It is not safe for concurrent use.
type Stream struct {
	sender
	receiver
	open bool // connection data was exchanged
	end
	entry [IOMapLen]byte // where entries of tables are encoded: memory of a caller would go to the heap
}

// end is what both sides have said about ending.
type end struct {
	readShut, writeShut bool // by this side
	peerShut            bool // the peer sends no more
	disconnected        bool
	gone                bool   // the peer takes no more either
	toSend              uint32 // the control message that waits for its turn; noCtrl if none
	told                bool   // DISCONNECT is on its way
}

// noCtrl is what a control message is not.
const noCtrl = ^uint32(0)

// New makes the state of an end that does not know its peer yet.
func New(p Params) *Stream {
	s := &Stream{end: end{toSend: noCtrl}}
	s.slots, s.bufLen = p.SQ-CtrlSlots, p.SendBuf
	half := p.RecvBuf / 2
	s.half, s.table, s.rq, s.ring = half, p.Table, p.RQ, p.Ring
	// The second half counts as freed, so that it is the first to be handed out (W-RS-17).
	s.published, s.freed, s.freeAt, s.remoteEntry = half, half, half, 1
	s.update = uint16(p.RQ / 2)
	s.nextEntry = 1
	return s
}

// Connect takes the peer's connection data.
func (s *Stream) Connect(peer ConnData) {
	s.peer, s.open = peer, true
	s.limit = peer.Credits
	s.target[0] = peer.Data
	s.maps = make([]IOMap, (len(s.table)-TableEntries*SGELen)/IOMapLen)
}

// OnMessage takes a message that has come: the word of its immediate data and how many bytes were written with it. Its
// error says how the peer has broken the protocol.
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
		return fmt.Errorf("a message of unknown kind, %#08x", word)
	}
	return nil
}

// onShutdown takes the end of the peer's sending. If this side's has ended before, the connection is over, though what was written last
// may still be under way; if the peer was not told so yet, it is to be told now that all is over.
func (s *Stream) onShutdown() {
	s.peerShut = true
	switch {
	case s.toSend == CtrlShutdown:
		s.toSend = CtrlDisconnect
	case s.writeShut && !s.told:
		s.disconnected = true
	}
}

// onSGL takes a new limit of credits, and the entry that came with it into use.
func (s *Stream) onSGL(limit uint16, written uint32) error {
	s.limit = limit
	switch written {
	case 0:
		return nil
	case SGELen:
	default:
		return fmt.Errorf("an entry of %d bytes for the table; they have %d", written, SGELen)
	}
	i := s.nextEntry
	e := ParseSGE(s.table[i*SGELen:], binary.NativeEndian)
	if e.Length == 0 || s.target[i].Length != 0 {
		return fmt.Errorf("entry %d of the table, the next in turn, is empty or in use", i)
	}
	s.target[i] = e
	s.nextEntry = (i + 1) % TableEntries
	return nil
}

// onIOMap takes the peer's new or changed IO map into use.
func (s *Stream) onIOMap(i, written uint32) error {
	if int64(i) >= int64(len(s.maps)) || written != IOMapLen {
		return fmt.Errorf("%d bytes for IO map %d; there are %d of %d bytes", written, i, len(s.maps), IOMapLen)
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

// NextControl is the next control message to post, if there is one and a place for it.
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

// Keepalive counts a keepalive message, if there is a place for it.
func (s *Stream) Keepalive() bool {
	if !s.open || s.disconnected || s.told || s.ctrl == CtrlSlots {
		return false
	}
	s.ctrl++
	return true
}

// OnControlSent takes back the place of a control message that is complete.
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

// Disconnect takes the end of the connection that something else than a message has brought (W-RS-30).
func (s *Stream) Disconnect() { s.disconnected, s.gone = true, true }

// PeerGone tells whether the peer takes no more: nothing has to be delivered to it.
func (s *Stream) PeerGone() bool { return s.gone }

// Disconnected tells whether the connection has ended. What has come before is still readable.
func (s *Stream) Disconnected() bool { return s.disconnected }

// Over tells whether both sides know that the connection has ended, so that the peer's messages are for nobody: this side's
// DISCONNECT is acknowledged, or the peer's has come and this side sends no more either, or each side's SHUTDOWN has arrived (W-RS-29).
func (s *Stream) Over() bool {
	return s.told && s.Idle() || s.disconnected && s.writeShut && (s.gone || s.Idle())
}

// EOF tells whether there is nothing to read and there never will be.
func (s *Stream) EOF() bool { return s.readShut || s.queued == 0 && (s.peerShut || s.disconnected) }

// ReadShut tells whether this side has ended reading.
func (s *Stream) ReadShut() bool { return s.readShut }

// WriteShut tells whether this side has ended sending.
func (s *Stream) WriteShut() bool { return s.writeShut }

// Idle tells whether nothing that was posted is under way, nor waits for being posted.
func (s *Stream) Idle() bool {
	return s.ctrl == 0 && s.inFlight == 0 && (s.toSend == noCtrl || s.disconnected)
}

package transport

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// One ACK covers everything before it. Duplicate, late and unexpected ACKs change nothing.
func TestAcksAreCumulative(t *testing.T) {
	s := newSender(t, RC, nil)
	for range 4 {
		s.send(10)
	}
	s.out()
	s.ack(1002)
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 0", "wr 3 status 0 op 0")
	for _, at := range []uint32{1002, 1000, 999, 0, 1004, 1005, 1<<23 + 1003, 1<<23 + 1002} {
		s.ack(at)
		s.nak(at, wire.SynAccess)
		s.nak(at, wire.SynSeqErr)
		s.data(wire.ReadRespOnly, at, 10)
		s.atomicAck(at, 1)
	}
	s.completes()
	s.sends()
	s.ack(1003)
	s.completes("wr 4 status 0 op 0")
	s.checkIdle()
	s.is(RTS)
}

// An ACK may acknowledge a packet in the middle of a message.
func TestAckWithinAMessage(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(5000)
	s.out()
	s.ack(1002)
	s.completes()
	s.timeout()
	s.sends("RC SEND MIDDLE 1003 A +1024", "RC SEND LAST 1004 A +904")
	s.ack(1004)
	s.completes("wr 1 status 0 op 0")
	s.checkIdle()
}

func TestV_QP_10_OnlySignaledRequestsComplete(t *testing.T) {
	s := newSender(t, RC, func(c *Config, _ *Attr) { c.SigAll = false })
	for i := range 70 {
		s.post(OpSend, s.sges(0, 1), func(w *SendWQE) {
			if i%16 == 15 {
				w.Flags = Signaled
			}
		})
		s.out()
		s.ack(uint32(firstPSN + i))
		if i == 15 {
			s.completes("wr 16 status 0 op 0") // frees sixteen slots
		}
	}
	s.completes("wr 32 status 0 op 0", "wr 48 status 0 op 0", "wr 64 status 0 op 0")
	s.checkIdle()
}

// X-WC-01: each operation completes with its own opcode and length.
func TestX_WC_01_CompletionOpcodes(t *testing.T) {
	s := newSender(t, RC, nil)
	for _, op := range []Op{OpSend, OpSendImm, OpSendInv, OpWrite, OpWriteImm, OpRead, OpCmpSwap, OpFetchAdd} {
		s.post(op, s.sges(0, 8), nil)
	}
	s.out()
	s.data(wire.ReadRespOnly, 1005, 8)
	s.atomicAck(1006, 1)
	s.atomicAck(1007, 1)
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 0", "wr 3 status 0 op 0", "wr 4 status 0 op 1",
		"wr 5 status 0 op 1", "wr 6 status 0 op 2 len 8", "wr 7 status 0 op 3 len 8", "wr 8 status 0 op 4 len 8")
	s.checkIdle()
}

// A READ response is scattered over its SGEs and changes no other memory.
func TestV_GEN_24_ReadDataLandsInTheLocalBuffer(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpRead, s.sges(100, 3000, 7, 0, 1017, 1), nil)
	s.post(OpRead, s.sges(5000, 1024), nil)
	s.sends("RC RDMA READ REQUEST 1000 A reth a000 b0b 3000", "RC RDMA READ REQUEST 1003 A reth a000 b0b 1024")
	s.data(wire.ReadRespFirst, 1000, 1024)
	s.data(wire.ReadRespMiddle, 1001, 1024)
	s.completes()
	s.data(wire.ReadRespLast, 1002, 952)
	s.data(wire.ReadRespOnly, 1003, 1024)
	s.completes("wr 1 status 0 op 2 len 3000", "wr 2 status 0 op 2 len 1024")
	s.checkIdle()
	want := bytes.Clone(noise)
	for i, n := range []int{1024, 1024, 952} {
		copy(want[100+1024*i:], pattern(uint32(1000+i), n))
	}
	copy(want[5000:], pattern(1003, 1024))
	if !bytes.Equal(s.mem.Buf, want) {
		t.Error("wrong bytes in memory")
	}
}

// V-GEN-26: the original value is returned in host byte order, over any SGEs.
func TestV_GEN_26_AtomicsReturnTheOldValue(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpFetchAdd, s.sges(64, 8), nil)
	s.post(OpCmpSwap, s.sges(129, 8, 3), nil)
	s.out()
	s.atomicAck(1000, 0x0102030405060708)
	s.atomicAck(1001, 42)
	s.completes("wr 1 status 0 op 4 len 8", "wr 2 status 0 op 3 len 8")
	want := bytes.Clone(noise)
	binary.NativeEndian.PutUint64(want[64:], 0x0102030405060708)
	binary.NativeEndian.PutUint64(want[129:], 42)
	if !bytes.Equal(s.mem.Buf, want) {
		t.Error("wrong bytes in memory")
	}
	s.checkIdle()
}

// A READ response or atomic acknowledge acknowledges SENDs and WRITEs before it.
func TestImplicitAcknowledgement(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.post(OpWrite, s.sges(0, 1), nil)
	s.post(OpRead, s.sges(0, 2), nil)
	s.post(OpWrite, s.sges(0, 3000), nil)
	s.post(OpFetchAdd, s.sges(0, 8), nil)
	s.out()
	s.data(wire.ReadRespOnly, 1002, 2)
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 1", "wr 3 status 0 op 2 len 2")
	s.atomicAck(1006, 0)
	s.completes("wr 4 status 0 op 1", "wr 5 status 0 op 4 len 8")
	s.checkIdle()
}

// V-SEND-09: a fenced request waits for earlier READs and atomics only.
func TestV_SEND_09_FenceWaitsForReadsAndAtomics(t *testing.T) {
	s := newSender(t, RC, nil)
	fenced := func(w *SendWQE) { w.Flags = Fence }
	s.post(OpWrite, s.sges(0, 1), nil)
	s.post(OpSend, s.sges(0, 1), fenced)
	s.post(OpRead, s.sges(0, 1), nil)
	s.post(OpFetchAdd, s.sges(0, 8), nil)
	s.send(1)
	s.post(OpSend, s.sges(0, 2), fenced)
	s.send(3)
	s.sends("RC RDMA WRITE ONLY 1000 A reth a000 b0b 1 +1", "RC SEND ONLY 1001 A +1",
		"RC RDMA READ REQUEST 1002 A reth a000 b0b 1", "RC FETCH ADD 1003 A atomic a000 b0b 3 0", "RC SEND ONLY 1004 A +1")
	s.data(wire.ReadRespOnly, 1002, 1)
	s.sends()
	s.atomicAck(1003, 0)
	s.sends("RC SEND ONLY 1005 A +2", "RC SEND ONLY 1006 A +3")
}

// Initiator depth: at most max_rd_atomic READs and atomics are outstanding; later requests wait.
func TestInitiatorDepth(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.MaxRdAtomic = 2 })
	for range 2 {
		s.post(OpRead, s.sges(0, 1025), nil)
		s.post(OpFetchAdd, s.sges(0, 8), nil)
	}
	s.send(1)
	s.sends("RC RDMA READ REQUEST 1000 A reth a000 b0b 1025", "RC FETCH ADD 1002 A atomic a000 b0b 3 0")
	s.data(wire.ReadRespFirst, 1000, 1024)
	s.sends()
	s.data(wire.ReadRespLast, 1001, 1)
	s.sends("RC RDMA READ REQUEST 1003 A reth a000 b0b 1025")
	s.timeout() // resends exactly the outstanding requests
	s.sends("RC FETCH ADD 1002 A atomic a000 b0b 3 0", "RC RDMA READ REQUEST 1003 A reth a000 b0b 1025")
	s.atomicAck(1002, 0)
	s.sends("RC FETCH ADD 1005 A atomic a000 b0b 3 0", "RC SEND ONLY 1006 A +1")
	s.data(wire.ReadRespFirst, 1003, 1024)
	s.data(wire.ReadRespLast, 1004, 1)
	s.atomicAck(1005, 0)
	s.ack(1006)
	s.checkIdle()
}

// A READ larger than its share of the window is requested in pieces and completes as one.
func TestLargeReadIsRequestedInCells(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.MaxRdAtomic = 2 })
	s.qp.SetWindow(6*(1024+packetCost), nil)
	s.post(OpRead, s.sges(0, 7*1024+1), nil)
	s.sends("RC RDMA READ REQUEST 1000 A reth a000 b0b 3072", "RC RDMA READ REQUEST 1003 A reth ac00 b0b 3072")
	s.data(wire.ReadRespFirst, 1000, 1024)
	s.data(wire.ReadRespMiddle, 1001, 1024)
	s.sends()
	s.timeout() // the rest of the first piece, and the second
	s.sends("RC RDMA READ REQUEST 1002 A reth a800 b0b 1024", "RC RDMA READ REQUEST 1003 A reth ac00 b0b 3072")
	s.data(wire.ReadRespLast, 1002, 1024) // of the first transmission
	s.sends("RC RDMA READ REQUEST 1006 A reth b800 b0b 1025")
	s.data(wire.ReadRespOnly, 1002, 1024) // of the second transmission: a duplicate
	s.data(wire.ReadRespFirst, 1003, 1024)
	s.data(wire.ReadRespMiddle, 1004, 1024)
	s.data(wire.ReadRespLast, 1005, 1024)
	s.data(wire.ReadRespFirst, 1006, 1024)
	s.completes()
	s.data(wire.ReadRespLast, 1007, 1)
	s.completes("wr 1 status 0 op 2 len 7169")
	s.checkIdle()
	for i := range 7 {
		if !bytes.Equal(s.mem.Buf[i<<10:(i+1)<<10], pattern(uint32(1000+i), 1024)) {
			t.Errorf("packet %d is not where it belongs", i)
		}
	}
}

// The place of the next byte is known from packet to packet, in READs and in messages: it is not looked for again.
func TestPlaceInTheBufferIsKept(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpRead, s.sges(0, 3000, 100), nil)
	s.out()
	s.data(wire.ReadRespFirst, 1000, 1024)
	if c := s.qp.req.to; c.pos != 1024 || c.sge != 1 || c.off != 924 {
		t.Errorf("READ: %+v", c)
	}
	s = newSender(t, RC, nil)
	s.post(OpSend, s.sges(0, 3000, 100), nil)
	s.qp.Transmit(s.now, s.tx, 1)
	if c := s.qp.req.from; c.pos != 1024 || c.sge != 1 || c.off != 924 {
		t.Errorf("SEND: %+v", c)
	}
}

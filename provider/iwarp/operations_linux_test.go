package iwarp_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// region registers memory of its own for an end.
func (e *end) region(mem []byte, access verbs.AccessFlags) *verbs.MR {
	e.t.Helper()
	mr, err := e.PD().RegMR(mem, access)
	must(e.t, err)
	e.t.Cleanup(func() { must(e.t, mr.Close()) })
	return mr
}

// sent posts a request and expects it to succeed.
func (e *end) sent(wr verbs.SendWR) {
	e.t.Helper()
	must(e.t, e.QP().PostSend(wr))
	if wc := e.wait(e.SendCQ()); wc.Status != verbs.WCSuccess {
		e.t.Fatalf("%v: %+v", wr.Opcode, wc)
	}
}

// Atomics between two ends of Verbena return the old value and change it.
func TestAtomics(t *testing.T) {
	c, s := connect(t)
	mem := make([]byte, 64)
	word := s.region(mem, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
	binary.NativeEndian.PutUint64(mem[8:], 40)
	c.sent(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: c.sge(0, 8), RemoteAddr: word.Addr() + 8,
		RKey: word.RKey(), CompareAdd: 2})
	if old := binary.NativeEndian.Uint64(c.mem); old != 40 {
		t.Errorf("the sum's old value is %d", old)
	}
	c.sent(verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, SGList: c.sge(0, 8), RemoteAddr: word.Addr() + 8,
		RKey: word.RKey(), CompareAdd: 42, Swap: 7})
	if old := binary.NativeEndian.Uint64(c.mem); old != 42 || binary.NativeEndian.Uint64(mem[8:]) != 7 {
		t.Errorf("the exchange returned %d and left %d", old, binary.NativeEndian.Uint64(mem[8:]))
	}
	must(t, c.QP().PostSend(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: c.sge(0, 8),
		RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()}))
	if wc := c.wait(c.SendCQ()); wc.Status != verbs.WCRemAccessErr {
		t.Errorf("an atomic in a region without the right: %+v", wc)
	}
}

// WRITE with immediate data consumes a receive after the bytes have arrived.
func TestWriteWithImm(t *testing.T) {
	c, s := connect(t)
	for _, n := range []int{0, 5, 100_000} {
		fill(c.mem, byte(n+3))
		s.recv(7, 0, 0)
		c.sent(verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGList: c.sge(0, n), RemoteAddr: s.mr.Addr() + 64,
			RKey: s.mr.RKey(), ImmData: 0x01020304})
		wc := s.wait(s.RecvCQ())
		if wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCRecvRDMAWithImm || wc.ImmData != 0x01020304 ||
			wc.ByteLen != uint32(n) || !bytes.Equal(s.mem[64:64+n], c.mem[:n]) {
			t.Errorf("%d bytes: %+v", n, wc)
		}
	}
}

// A window of type 2 gives its rights until the peer's SEND invalidates it.
func TestWindowAndSendWithInv(t *testing.T) {
	c, s := connect(t)
	mem := make([]byte, 4096)
	mr := s.region(mem, verbs.AccessLocalWrite|verbs.AccessMWBind)
	mw, err := s.PD().AllocMW(verbs.MWType2)
	must(t, err)
	defer func() { must(t, mw.Close()) }()
	key := verbs.IncRKey(mw.RKey())
	s.sent(verbs.SendWR{Opcode: verbs.WRBindMW, MW: mw, RKey: key, BindInfo: &verbs.MWBindInfo{
		MR: mr, Addr: mr.Addr() + 1024, Length: 1024, Access: verbs.AccessRemoteWrite}})
	fill(c.mem[:1024], 1)
	write := verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, 1024), RemoteAddr: mr.Addr() + 1024, RKey: key}
	c.sent(write)
	s.recv(1, 0, 16)
	c.sent(verbs.SendWR{Opcode: verbs.WRSendWithInv, SGList: c.sge(0, 4), InvalidateRKey: key})
	wc := s.wait(s.RecvCQ())
	if wc.Status != verbs.WCSuccess || wc.WCFlags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key {
		t.Errorf("the SEND: %+v", wc)
	}
	if !bytes.Equal(mem[1024:2048], c.mem[:1024]) {
		t.Error("the WRITE through the window did not arrive")
	}
	// A WRITE completes when TCP has taken it: the failure shows in the receive.
	c.recv(2, 0, 16)
	must(t, c.QP().PostSend(write))
	if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCWRFlushErr {
		t.Errorf("a WRITE with a key that is no longer valid: the receive has %+v", wc)
	}
	must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
}

// A connection takes its receives from a shared queue. The completion channel reports the message.
func TestSharedReceivesAndEvents(t *testing.T) {
	h := newHost(t)
	l, lch := listen(t, h)
	id, ch := resolved(t, h, l.LocalAddr())
	c := equip(t, id, ch)
	must(t, id.Connect(t.Context(), nil))
	ev := event(t, lch, rdmacm.EventConnectRequest)
	must(t, ev.ID.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}}))
	s := equip(t, ev.ID, lch)
	must(t, ev.Ack())
	must(t, s.RecvCQ().ReqNotify(false))
	for i := range 4 {
		must(t, s.SRQ().PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: s.sge(i*64, 64)}))
	}
	must(t, s.Accept(t.Context(), nil))
	must(t, event(t, lch, rdmacm.EventEstablished).Ack())
	must(t, event(t, ch, rdmacm.EventEstablished).Ack())
	for i := range 4 {
		c.sent(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte{1, 2, byte(i)}})
	}
	ctx, cancel := limit()
	defer cancel()
	cq, err := s.RecvCQChannel().GetEvent(ctx)
	must(t, err)
	cq.AckEvents(1)
	for i := range 4 {
		wc := s.wait(s.RecvCQ())
		if wc.Status != verbs.WCSuccess || wc.WRID != uint64(i) || wc.QPNum != s.QP().QPN() || wc.ByteLen != 3 ||
			s.mem[64*i+2] != byte(i) {
			t.Errorf("message %d: %+v", i, wc)
		}
	}
	t.Cleanup(func() {
		must(t, s.DestroyQP())
		must(t, s.DestroySRQ())
	})
}

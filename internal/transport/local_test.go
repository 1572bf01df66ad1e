package transport

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
)

// window returns an unbound memory window.
func (s *sender) window(typ mr.WindowType) *mr.Window {
	s.t.Helper()
	w := &mr.Window{PD: testPD, Type: typ}
	if err := s.qp.Regions.AddWindow(w); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// bind posts a bind of w to n bytes at addr of the region and returns the new key.
func (s *sender) bind(w *mr.Window, addr, n uint64) uint32 {
	s.t.Helper()
	key := s.qp.Regions.Key(w)
	key = key&^255 | uint32(uint8(key+1))
	s.post(OpBindMW, nil, func(q *SendWQE) {
		s.qp.SQ.More(q).Bind = mr.Binding{
			Window: w,
			RKey:   key,
			LKey:   s.mem.LKey,
			Addr:   addr,
			Length: n,
			Access: mr.RemoteRead,
		}
	})
	return key
}

func (s *sender) invalidate(key uint32) {
	s.t.Helper()
	s.post(OpLocalInv, nil, func(q *SendWQE) { q.Imm = key })
}

// bindable returns a QP whose region permits windows.
func bindable(t *testing.T, typ Type) *sender {
	s := newSender(t, typ, nil)
	s.unregister()
	s.mem.Access |= mr.MWBind
	if err := s.qp.Regions.Add(s.mem); err != nil {
		t.Fatal(err)
	}
	return s
}

// peerMay reports whether the QP's peer may read a byte at addr through a key.
func (s *sender) peerMay(key uint32, addr uint64) bool {
	_, w, err := s.qp.Regions.CheckRemote(key, addr, 1, testPD, s.qp.id, mr.RemoteRead)
	w.Release()
	return err == nil
}

func TestV_MW_04_BindAndInvalidateComplete(t *testing.T) {
	for _, typ := range []Type{RC, UC} {
		for _, kind := range []mr.WindowType{mr.Type1, mr.Type2} {
			s := bindable(t, typ)
			w := s.window(kind)
			key := s.bind(w, memBase+8, 8)
			if s.peerMay(key, memBase+8) {
				t.Error("bound before the shard has looked at it")
			}
			s.sends()
			s.completes("wr 1 status 0 op 5")
			if !s.peerMay(key, memBase+15) || s.peerMay(key, memBase+16) {
				t.Error("not bound as asked for")
			}
			if kind == mr.Type1 {
				next := s.bind(w, 0, 0)
				s.sends()
				s.completes("wr 2 status 0 op 5")
				if s.peerMay(next, memBase+8) {
					t.Error("bound to nothing, but the new key works")
				}
			} else {
				s.invalidate(key)
				s.sends()
				s.completes("wr 2 status 0 op 6")
			}
			if s.peerMay(key, memBase+8) {
				t.Error("still bound")
			}
			s.checkIdle()
		}
	}
}

// V-MW-05: a SEND posted after a bind is sent after it; the bind waits for earlier requests.
func TestV_MW_05_LocalOperationsKeepTheirPlace(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type2)
	s.send(1)
	key := s.bind(w, memBase, 8)
	s.send(2)
	s.invalidate(key)
	s.bind(w, memBase, 8)
	s.read(3)
	s.sends() // the first SEND was sent with read's out
	s.completes()
	if s.peerMay(key, memBase) {
		t.Error("bound before its turn")
	}
	s.ack(1000)
	s.completes("wr 1 status 0 op 0")
	s.sends("RC SEND ONLY 1001 A +2")
	s.completes("wr 2 status 0 op 5")
	if !s.peerMay(key, memBase) {
		t.Error("the SEND has left, but the window is not bound")
	}
	s.ack(1001)
	s.sends("RC RDMA READ REQUEST 1002 A reth a000 b0b 3")
	s.completes("wr 3 status 0 op 0", "wr 4 status 0 op 6", "wr 5 status 0 op 5")
}

// A retry does not repeat a local operation.
func TestLocalOperationsAreExecutedOnce(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type2)
	s.bind(w, memBase, 8) // binding it again would fail
	s.send(2)
	s.sends("RC SEND ONLY 1000 A +2")
	s.timeout()
	s.sends("RC SEND ONLY 1000 A +2")
	s.ack(1000)
	s.completes("wr 1 status 0 op 5", "wr 2 status 0 op 0")
	s.checkIdle()
}

func TestUnsignaledLocalOperations(t *testing.T) {
	s := bindable(t, RC)
	s.qp.SigAll = false
	w := s.window(mr.Type2)
	for range 200 { // more than the queue has slots
		key := s.bind(w, memBase, 8)
		s.invalidate(key)
		s.post(OpSend, nil, func(q *SendWQE) { q.Flags = Signaled })
		s.out()
		s.ack(s.qp.req.una)
		if len(s.cqes) != 1 {
			t.Fatalf("completions %+v", s.cqes)
		}
		s.qp.SQ.Release(s.cqes[0].Slot)
		s.cqes = s.cqes[:0]
	}
}

// Another shard may still use the previous binding of a type 1 window: the bind completes afterwards.
func TestBindOfType1WaitsForUsers(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type1)
	key := s.bind(w, memBase, 8)
	s.out()
	s.completes("wr 1 status 0 op 5")
	_, held, err := s.qp.Regions.CheckRemote(key, memBase, 1, testPD, 99, mr.RemoteRead)
	if err != nil || held == nil {
		t.Fatalf("window %v, %v", held, err)
	}
	s.bind(w, 0, 0)
	s.send(1)
	for range 3 {
		if more := s.qp.Transmit(s.now, s.tx, 64); !more || !s.tx.Empty() {
			t.Fatal("the bind does not wait, or transmit does not report more work")
		}
		s.completes()
	}
	if s.peerMay(key, memBase) {
		t.Error("the old key still works")
	}
	held.Release()
	s.sends("RC SEND ONLY 1000 A +1")
	s.completes("wr 2 status 0 op 5")
}

func TestV_QPS_11_DrainingLeavesLocalOperations(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type2)
	s.send(1)
	s.out()
	key := s.bind(w, memBase, 8)
	s.modify(SQD, Attr{}, 0)
	s.ack(1000)
	s.sends()
	s.completes("wr 1 status 0 op 0")
	if s.qp.Draining() || s.peerMay(key, memBase) {
		t.Error("it is draining, or the bind has begun in SQD")
	}
	s.modify(RTS, Attr{}, 0)
	s.sends()
	s.completes("wr 2 status 0 op 5")
}

func TestV_QPS_16_LocalOperationsAreFlushed(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type2)
	s.send(1)
	s.out()
	key := s.bind(w, memBase, 8)
	s.modify(Err, Attr{}, 0)
	s.completes("wr 1 status 5", "wr 2 status 5")
	if s.peerMay(key, memBase) {
		t.Error("a flushed bind was executed")
	}
}

// Another QP cannot invalidate the window, also not a new QP with the same number.
func TestType2WindowsBelongToOneQP(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type2)
	key := s.bind(w, memBase, 8)
	s.out()
	other := NewQP(s.qp.Config)
	if other.id == s.qp.id {
		t.Fatal("two QPs have one identity")
	}
	if err := s.qp.Regions.Invalidate(key, testPD, other.id); err == nil {
		t.Error("invalidated through another QP of that number")
	}
}

func TestLocalOperationsAllocateNothing(t *testing.T) {
	s := bindable(t, RC)
	w := s.window(mr.Type2)
	q, tab := s.qp.SQ, s.qp.Regions
	key := tab.Key(w)
	s.cqes = make([]CQE, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		key = key&^255 | uint32(uint8(key+1))
		b := q.Next()
		b.Op, b.Flags = OpBindMW, Signaled
		q.More(b).Bind = mr.Binding{Window: w, RKey: key, LKey: s.mem.LKey, Addr: memBase, Length: 8}
		q.Commit()
		b = q.Next()
		b.Op, b.Flags, b.Imm = OpLocalInv, Signaled, key
		q.Commit()
		q.Publish()
		s.qp.Transmit(0, s.tx, 64)
		if len(s.cqes) != 2 || s.cqes[1].Status != Success {
			t.Fatalf("%+v", s.cqes)
		}
		q.Release(s.cqes[1].Slot)
		s.cqes = s.cqes[:0]
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

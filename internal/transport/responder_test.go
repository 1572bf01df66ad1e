package transport

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// play executes the lines of a transcript and returns the stage.
func play(t testing.TB, lines ...string) *stage {
	t.Helper()
	s := newStage(t)
	for _, l := range lines {
		if err := s.doLine(l); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
	return s
}

func TestV_RECV_06_GRHOfAnIPv4Packet(t *testing.T) {
	s := play(t, "qp ud", "region A", "recv 1 A+0/100", "in SEND_ONLY data=hello")
	h := wire.GRH(s.named["A"].Buf[:wire.GRHLen])
	if h.Version() != 4 || h.SrcIP() != peerAddr || h.DstIP() != stageAddr || h.HopLimit() != 64 {
		t.Errorf("version %d, from %v to %v, TTL %d", h.Version(), h.SrcIP(), h.DstIP(), h.HopLimit())
	}
	// UDP header, BTH, DETH, 5 bytes and 3 of pad, ICRC
	if got, want := int(h[22])<<8|int(h[23]), 20+8+12+8+8+4; got != want {
		t.Errorf("the IPv4 header says %d bytes, want %d", got, want)
	}
}

func TestV_RECV_06_GRHOfAnIPv6Packet(t *testing.T) {
	s := play(t, "qp ud", "region A", "recv 1 A+0/100", "in SEND_ONLY data=hello from=2001:db8::2")
	h := wire.GRH(s.named["A"].Buf[:wire.GRHLen])
	if h.Version() != 6 || h.SrcIP().String() != "2001:db8::2" || h.DstIP().String() != "2001:db8::1" {
		t.Errorf("version %d, from %v to %v", h.Version(), h.SrcIP(), h.DstIP())
	}
	if got, want := int(h[4])<<8|int(h[5]), 8+12+8+8+4; got != want {
		t.Errorf("the IPv6 header says %d bytes, want %d", got, want)
	}
}

func TestV_QPS_14_ReceivesGoOnInSQE(t *testing.T) {
	for _, c := range []struct{ kind, want string }{
		{"uc", "cqe recv id=1 SUCCESS len=2"},
		{"ud", "cqe recv id=1 SUCCESS len=42 grh src=0x22"},
	} {
		s := play(t, "qp "+c.kind, "region A", "recv 1 A+0/100")
		s.qp.leave(SQE, &Failure{Status: LocProtErr})
		s.log = nil
		if err := s.doLine("in SEND_ONLY psn=100 data=ab"); err != nil {
			t.Fatal(err)
		}
		if len(s.log) != 1 || s.log[0] != c.want || s.qp.State() != SQE {
			t.Errorf("%s: %v in state %v", c.kind, s.log, s.qp.State())
		}
	}
}

// A reply that does not fit the batch is sent with the next one, in order.
func TestRepliesWaitForRoomInTheBatch(t *testing.T) {
	s := play(t, "qp rc", "region A", "recv 1 A+0/100",
		"in+ READ psn=100 at=A+0/300", "in+ FETCH_ADD psn=102 at=A+8 add=1", "in+ SEND_ONLY psn=103 ackreq data=x")
	s.tx = link.NewTxBatch(1, wire.MaxPacketLen+wire.ICRCLen)
	s.log = nil
	s.transmit(100)
	var got []string
	for _, l := range s.log {
		got = append(got, strings.Join(strings.Fields(l)[1:5], " "))
	}
	want := []string{
		"RDMA READ RESPONSE FIRST",
		"RDMA READ RESPONSE LAST",
		"ATOMIC ACKNOWLEDGE psn=102 ack",
		"ACKNOWLEDGE psn=103 ack msn=3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The response to a READ that is repeated does not replace the acknowledgement of a later message.
func TestRepeatedReadKeepsALaterAcknowledgement(t *testing.T) {
	s := play(t, "qp rc", "region A", "recv 1 A+0/100", "in READ psn=100 at=A+0/4",
		"in+ SEND_ONLY psn=101 ackreq data=x", "in+ READ psn=100 at=A+0/4")
	s.log = nil
	s.transmit(100)
	same(t, "replies", s.log, []string{
		"> RDMA READ RESPONSE ONLY psn=100 ack msn=2 data=x...", "> ACKNOWLEDGE psn=101 ack msn=2",
	})
}

// A flushed receive refers to the first failure.
func TestV_QPS_16_FlushedReceivesPointToTheFirstFailure(t *testing.T) {
	var cqes []CQE
	s := play(t, "qp rc", "region A", "recv 1 A+0/1", "recv 2 A+0/1")
	s.qp.resp.cq = pushFunc(func(e *CQE) { cqes = append(cqes, *e) })
	if err := s.doLine("in SEND_ONLY psn=100 data=ab"); err != nil {
		t.Fatal(err)
	}
	if len(cqes) != 2 || cqes[0].Status != LocLenErr || cqes[1].Status != WRFlushErr {
		t.Fatalf("completions %+v", cqes)
	}
	first := cqes[0].Cause
	if first == nil || cqes[1].Cause == nil || cqes[1].Cause.First != first {
		t.Errorf("causes %+v, %+v", first, cqes[1].Cause)
	}
	if first.Peer != peerAddr.String() || first.DestQPN != peerQPN || first.Syndrome != wire.SynInvReq {
		t.Errorf("the story of the failure is %+v", first)
	}
}

type pushFunc func(*CQE)

func (f pushFunc) Push(e *CQE) { f(e) }

func TestX_RECV_02_CompletionNamesItsQueueAndQP(t *testing.T) {
	for _, srq := range []string{"yes", "no"} {
		var got CQE
		s := play(t, "qp rc srq="+srq, "region A", "recv 1 A+0/10")
		s.qp.resp.cq = pushFunc(func(e *CQE) { got = *e })
		if err := s.doLine("in SEND_ONLY psn=100 data=ab"); err != nil {
			t.Fatal(err)
		}
		if got.RQ != s.qp.RQ || got.QP != s.qp || got.QPN != stageQPN || got.Send {
			t.Errorf("srq=%s: %+v", srq, got)
		}
	}
}

// A receive occupies its slot until its completion was polled, also if its QP is reset in the middle of a message.
func TestV_GEN_06_ResetReturnsTheReceiveOfAnSRQ(t *testing.T) {
	s := play(t, "qp rc srq=yes recvs=1", "region A", "recv 1 A+0/300", "in SEND_FIRST psn=100 data=a*256")
	if s.qp.RQ.Post(2, nil) == nil {
		t.Fatal("the queue took a second receive while the first one is outstanding")
	}
	if err := s.doLine("modify reset"); err != nil {
		t.Fatal(err)
	}
	if err := s.qp.RQ.Post(2, nil); err != nil {
		t.Fatal(err)
	}
}

// A datagram that is too long takes no receive, so it does not trigger an SRQ's limit.
func TestV_SRQ_09_DroppedDatagramDoesNotReachTheLimit(t *testing.T) {
	s := play(t, "qp ud srq=yes", "region A", "recv 1 A+0/44")
	hits := 0
	s.qp.RQ.OnLimit = func() { hits++ }
	s.qp.RQ.limit = 1
	for _, c := range []struct {
		data string
		want int
	}{{"hello", 0}, {"hell", 1}} {
		if err := s.doLine("in SEND_ONLY data=" + c.data); err != nil {
			t.Fatal(err)
		}
		if hits != c.want {
			t.Errorf("%s: the limit was reached %d times", c.data, hits)
		}
	}
}

func TestPutBackReceiveIsTheOldest(t *testing.T) {
	q := NewRecvQueue(2, 1, false, 0)
	var w RecvWQE
	for id := range uint64(10) { // past the end of the ring
		if err := q.Post(id, []SGE{{Addr: id, Length: 5}}); err != nil {
			t.Fatal(err)
		}
		if err := q.Post(id+100, nil); err != nil {
			t.Fatal(err)
		}
		q.Take(&w)
		q.putBack(&w)
		for _, want := range []uint64{id, id + 100} {
			if !q.Take(&w) || w.WRID != want || want == id && (len(w.SGEs) != 1 || w.SGEs[0].Addr != id) {
				t.Fatalf("took %+v, want %d", w, want)
			}
			q.Release(1)
		}
		if q.Posted() != 0 {
			t.Fatalf("%d are left", q.Posted())
		}
	}
}

func TestNoAllocationPerPacket(t *testing.T) {
	for _, c := range hotPaths {
		t.Run(c.name, func(t *testing.T) {
			run := c.start(t)
			for range 100 {
				run()
			}
			if n := testing.AllocsPerRun(200, run); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkResponder(b *testing.B) {
	for _, c := range hotPaths {
		b.Run(c.name, func(b *testing.B) {
			run := c.start(b)
			b.SetBytes(int64(c.bytes))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

type hotPath struct {
	name  string
	qp    string
	op    wire.Opcode
	bytes int
	recv  bool
	again bool // each request is sent twice
}

var hotPaths = []hotPath{
	{name: "SEND/64", qp: "rc", op: wire.SendOnly, bytes: 64, recv: true},
	{name: "SEND/4096", qp: "rc", op: wire.SendOnly, bytes: 4096, recv: true},
	{name: "WRITE/4096", qp: "rc", op: wire.WriteOnly, bytes: 4096},
	{name: "WRITE_WITH_IMM/64", qp: "rc", op: wire.WriteOnlyImm, bytes: 64, recv: true},
	{name: "READ/4096", qp: "rc", op: wire.ReadRequest, bytes: 4096},
	{name: "READ/65536", qp: "rc", op: wire.ReadRequest, bytes: 65536},
	{name: "READ/repeated", qp: "rc", op: wire.ReadRequest, bytes: 64, again: true},
	{name: "FETCH_ADD", qp: "rc", op: wire.FetchAdd, bytes: 8},
	{name: "FETCH_ADD/repeated", qp: "rc", op: wire.FetchAdd, bytes: 8, again: true},
	{name: "ATOMIC_WRITE", qp: "rc", op: wire.AtomicWrite, bytes: 8},
	{name: "ATOMIC_WRITE/repeated", qp: "rc", op: wire.AtomicWrite, bytes: 8, again: true},
	{name: "SEND/repeated", qp: "rc", op: wire.SendOnly, bytes: 64, recv: true, again: true},
	{name: "RNR", qp: "rc", op: wire.SendOnly, bytes: 64},
	{name: "UC_SEND/4096", qp: "uc", op: wire.SendOnly, bytes: 4096, recv: true},
	{name: "UD_SEND/1024", qp: "ud", op: wire.SendOnly, bytes: 1024, recv: true},
}

// start returns a function that handles one message and its response.
func (c *hotPath) start(t testing.TB) func() {
	s := play(t, "qp "+c.qp+" mtu=4096 rq_psn=0", "region A len=131072")
	s.quiet = true
	r := s.named["A"]
	f := wire.Fields{
		Opcode: s.qp.prefix() | c.op, PKey: wire.DefaultPKey, DestQPN: stageQPN, AckReq: true,
		QKey: s.qp.attr.QKey, SrcQPN: peerQPN, Addr: r.Base, RKey: r.RKey, DMALen: uint32(c.bytes),
	}
	if f.Opcode.Is(wire.HasData) {
		f.Payload = bytes.Repeat([]byte{1}, c.bytes)
	}
	p := f.Build()
	rx := link.RxPacket{Data: p, Src: peerAddr, Dst: stageAddr}
	sges := []SGE{{Addr: r.Base, Length: 65536, LKey: r.LKey}}
	h := wire.BTH(p)
	return func() {
		if c.recv {
			if err := s.qp.RQ.Post(1, sges); err != nil {
				t.Fatal(err)
			}
		}
		h.Put(h.Opcode(), h.Pad(), wire.DefaultPKey, stageQPN, s.qp.resp.epsn, wire.BTHAckReq)
		s.qp.OnPacket(0, &rx)
		if c.again {
			s.qp.OnPacket(0, &rx)
		}
		for s.qp.Transmit(0, s.tx, 64) {
			s.tx.Reset()
		}
		s.tx.Reset()
	}
}

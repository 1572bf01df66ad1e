package transport

import (
	"bytes"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestX_XRCD_01_PairXRCShared is TestPairXRC with domains of three processes at each end. Each message is for an SRQ of
// another one, and the packets between the processes may be lost too.
func TestX_XRCD_01_PairXRCShared(t *testing.T) {
	runPairsOf(t, "TestX_XRCD_01_PairXRCShared", 400, func(seed uint64) *pair {
		return newPairIn(&pair{t: t, shared: true}, seed, XRCSend)
	})
}

// addTargets makes the XRC_RECV QP of an end, its domain and its SRQ; for a shared domain also the guests of the QP in
// two other processes, whose SRQs have the same queue, so that the receives complete in the order of the messages.
func (e *pairEnd) addTargets(c Config) {
	processes := 1
	if e.p.shared {
		processes = 3
	}
	var all []*pairRelay
	for i := range processes {
		num := pairSRQN + uint32(i)<<16
		e.srqns = append(e.srqns, num)
		c.XRCD = NewXRCD()
		c.XRCD.Add(&XRCSRQ{Num: num, Queue: e.rq, CQ: e})
		if e.p.shared {
			r := &pairRelay{e: e, index: i}
			all = append(all, r)
			c.Relay, c.Guest = r, i > 0
		}
		qp := NewQP(c)
		if i == 0 {
			e.in = qp
		} else {
			e.guests = append(e.guests, qp)
		}
		if e.p.shared {
			all[i].qp = qp
		}
	}
	for _, r := range all {
		r.all, r.free = all, make([]int64, len(all))
	}
}

// pairRelay is the relay of one process. Messages between two processes stay in order, and may be late.
type pairRelay struct {
	e      *pairEnd
	qp     *QP
	index  int
	holder int // at home: the process that has the turn
	all    []*pairRelay
	free   []int64 // when the last message arrives at each process
}

func (r *pairRelay) Elsewhere(srqn uint32) bool { return srqn>>16 != uint32(pairSRQN>>16+r.index) }

// send makes another process do something later.
func (r *pairRelay) send(to int, do func()) {
	p := r.e.p
	at := max(p.now+1000, r.free[to]+1)
	if p.rnd.Float64() < p.late {
		at += int64(p.rnd.IntN(300_000))
	}
	r.free[to] = at
	p.net = append(p.net, flight{at: at, do: do})
}

// packet sends a packet to another process, or loses it.
func (r *pairRelay) packet(to int, p *link.RxPacket, deliver func(qp *QP, p *link.RxPacket)) {
	if r.e.p.rnd.Float64() < r.e.p.loss {
		return
	}
	pkt := link.RxPacket{Data: bytes.Clone(p.Data), Src: p.Src, Dst: p.Dst}
	r.send(to, func() { deliver(r.all[to].qp, &pkt) })
}

func (r *pairRelay) Pass(srqn uint32, t Turn, p *link.RxPacket) bool {
	to := 0
	if r.index == 0 {
		to = int(srqn>>16) - pairSRQN>>16
		r.holder = to
	}
	if to >= len(r.all) {
		return false
	}
	got, ok := ParseTurn(t.Append(nil))
	if !ok || got != t {
		r.e.p.t.Errorf("%+v is decoded as %+v", t, got)
	}
	pkt := link.RxPacket{Data: bytes.Clone(p.Data), Src: p.Src, Dst: p.Dst}
	r.send(to, func() {
		qp := r.all[to].qp
		qp.TakeTurn(got)
		qp.OnPacket(r.e.p.now, &pkt)
	})
	return true
}

func (r *pairRelay) Forward(p *link.RxPacket) {
	to := 0
	if r.index == 0 {
		to = r.holder
	}
	r.packet(to, p, func(qp *QP, p *link.RxPacket) { qp.OnPacket(r.e.p.now, p) })
}

func (r *pairRelay) Repeat(p *link.RxPacket) {
	for to := 1; to < len(r.all); to++ {
		r.packet(to, p, func(qp *QP, p *link.RxPacket) { qp.OnRepeat(r.e.p.now, p) })
	}
}

func (r *pairRelay) Aged(epsn uint32) {
	for to := range r.all {
		if to != r.index {
			r.send(to, func() { r.all[to].qp.OnAged(epsn) })
		}
	}
}

func (r *pairRelay) End(bool) {}

// An encoded turn that no responder passes on is refused.
func TestParseTurn(t *testing.T) {
	turn := Turn{epsn: 0xABCDEF, msn: 5, lost: 7, tail: tail{kind: tailSeqNAK, acked: true, seq: 3, msn: 4, nak: 9}}
	good := turn.Append(nil)
	if got, ok := ParseTurn(good); !ok || got != turn {
		t.Errorf("%+v, %v; want %+v", got, ok, turn)
	}
	for _, b := range [][]byte{nil, good[1:], append(bytes.Clone(good), 0)} {
		if _, ok := ParseTurn(b); ok {
			t.Errorf("%d bytes", len(b))
		}
	}
	for _, f := range []struct {
		at   int
		with byte
	}{{0, 1}, {4, 1}, {8, 1}, {12, 1}, {16, 1}, {21, byte(tailRNR)}} {
		bad := bytes.Clone(good)
		bad[f.at] = f.with
		if _, ok := ParseTurn(bad); ok {
			t.Errorf("byte %d is %d", f.at, f.with)
		}
	}
}

// noting is a relay that only notes what it is told. SRQs from 0x10000 on are elsewhere; those from 0x20000 on do
// not exist.
type noting struct {
	turns     []Turn
	forwarded int
	repeated  int
	aged      []uint32
	ended     []bool
}

func (*noting) Elsewhere(srqn uint32) bool { return srqn >= 0x10000 }

func (e *noting) Pass(srqn uint32, t Turn, _ *link.RxPacket) bool {
	if srqn >= 0x20000 {
		return false
	}
	e.turns = append(e.turns, t)
	return true
}

func (e *noting) Forward(*link.RxPacket) { e.forwarded++ }
func (e *noting) Repeat(*link.RxPacket)  { e.repeated++ }
func (e *noting) Aged(epsn uint32)       { e.aged = append(e.aged, epsn) }
func (e *noting) End(flush bool)         { e.ended = append(e.ended, flush) }

// home returns a QP of a shared domain, with SRQ 5 and two receives.
func home(t *testing.T, lines ...string) (*stage, *noting) {
	t.Helper()
	s, e := play(t, "qp xrc", "srq 5", "region A", "recv 1 A+0/10 srq=5", "recv 2 A+0/10 srq=5"), new(noting)
	s.qp.Relay = e
	do(t, s, lines...)
	return s, e
}

func do(t *testing.T, s *stage, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if err := s.doLine(l); err != nil {
			t.Fatal(err)
		}
	}
}

// The process that gets the turn continues where this one has stopped, with what it has not acknowledged yet.
func TestX_XRCD_01_TurnIsPassedWithItsState(t *testing.T) {
	s, e := home(t, "in SEND_ONLY psn=100 srqn=5 data=a")
	s.qp.resp.ack(100)
	do(t, s, "in+ SEND_FIRST psn=101 srqn=65536 data=a*256")
	want := Turn{epsn: 101, msn: 1, tail: tail{kind: tailAck, acked: true, seq: 100, msn: 1}}
	if len(e.turns) != 1 || e.turns[0] != want {
		t.Fatalf("%+v, want %+v", e.turns, want)
	}
	if !s.qp.resp.away || s.qp.resp.pending() {
		t.Error("this process would still answer")
	}
	do(t, s, "in SEND_LAST psn=102 data=a srqn=65536", "in SEND_ONLY psn=103 srqn=5 data=a")
	if e.forwarded != 2 {
		t.Errorf("%d packets forwarded", e.forwarded)
	}
	s.qp.TakeTurn(Turn{epsn: 103, msn: 2})
	do(t, s, "in SEND_ONLY psn=103 srqn=5 data=a")
	if r := &s.qp.resp; r.epsn != 104 || r.msn != 3 || len(e.turns) != 1 {
		t.Errorf("PSN %d, MSN %d", r.epsn, r.msn)
	}
}

// READ responses leave before the turn is passed.
func TestX_XRCD_01_ResponsesPrecedeTheTurn(t *testing.T) {
	s, e := home(t)
	do(t, s, "in+ READ psn=100 srqn=5 at=A+0/500", "in+ SEND_ONLY psn=102 srqn=65536 data=a")
	if len(e.turns) != 0 || s.qp.resp.away {
		t.Error("the turn was passed before the responses")
	}
	if r := &s.qp.resp; !r.gapReported || r.lost != 102 || r.tail.kind != tailSeqNAK {
		t.Errorf("the packet is not asked for again: %+v", r.tail)
	}
	do(t, s, "transmit", "in SEND_ONLY psn=102 srqn=65536 data=a")
	if len(e.turns) != 1 {
		t.Error("the turn was not passed")
	}
}

// A repeated READ goes to the process that executed it; a repeated SEND is acknowledged here.
func TestX_XRCD_01_RepeatedRequests(t *testing.T) {
	s, e := home(t, "in READ psn=100 srqn=5 at=A+0/10")
	do(t, s, "in READ psn=100 srqn=5 at=A+0/10")
	if e.repeated != 0 {
		t.Error("a READ that was executed here is asked for elsewhere")
	}
	s.qp.TakeTurn(Turn{epsn: 110, msn: 1}) // others have executed PSNs 101 to 109
	do(t, s, "in READ psn=105 srqn=65536 at=A+0/10", "in SEND_ONLY psn=106 srqn=65536 data=a")
	if e.repeated != 1 {
		t.Errorf("%d requests repeated", e.repeated)
	}
	do(t, s, "in SEND_ONLY psn=110 srqn=65536 data=a", "in READ psn=105 srqn=65536 at=A+0/10",
		"in READ psn=111 srqn=65536 at=A+0/10")
	if e.repeated != 2 || e.forwarded != 1 {
		t.Errorf("%d requests repeated, %d forwarded", e.repeated, e.forwarded)
	}
}

// A process whose SRQ nobody has is no process: the request is refused.
func TestX_XRCD_01_NoSuchProcess(t *testing.T) {
	s, e := home(t, "in SEND_ONLY psn=100 srqn=131072 data=a")
	if len(e.turns) != 0 || s.qp.State() != Err || s.qp.Cause().Status != RemInvReqErr {
		t.Errorf("state %d, %+v", s.qp.State(), s.qp.Cause())
	}
	if len(e.ended) == 0 || !e.ended[0] {
		t.Error("the guests have not ended")
	}
}

// The end of the process that has the turn ends the connection, with a NAK. One that does not have it ends nothing.
func TestX_XRCD_01_TurnLost(t *testing.T) {
	s, _ := home(t)
	s.qp.OnTurnLost()
	if s.qp.State() == Err {
		t.Fatal("a QP that has the turn has failed")
	}
	do(t, s, "in SEND_ONLY psn=100 srqn=65536 data=a")
	s.qp.OnTurnLost()
	if s.qp.State() != Err || s.qp.Cause().Status != RemOpErr || !s.qp.Cause().Heard || s.qp.resp.tail.kind != tailFatal {
		t.Errorf("state %d, %+v, %+v", s.qp.State(), s.qp.Cause(), s.qp.resp.tail)
	}
}

// Responses are dropped before their PSNs come again, also those in processes that execute nothing meanwhile.
func TestX_XRCD_01_OldResponsesExpire(t *testing.T) {
	s, e := home(t, "in READ psn=100 srqn=5 at=A+0/10")
	s.qp.OnAged(100 + maxAge/2)
	if s.qp.resp.kept != 1 {
		t.Fatal("dropped too early")
	}
	s.qp.OnAged(100 + maxAge + 10)
	if s.qp.resp.kept != 0 {
		t.Error("kept")
	}
	s.qp.TakeTurn(Turn{epsn: expireEvery - 1})
	do(t, s, "in SEND_ONLY psn=1048575 srqn=5 data=a")
	if len(e.aged) != 1 || e.aged[0] != expireEvery {
		t.Errorf("the others were told %v", e.aged)
	}
}

// RESET ends the QP in the other processes without flushing.
func TestX_XRCD_01_ResetEndsGuests(t *testing.T) {
	s, e := home(t, "in SEND_ONLY psn=100 srqn=65536 data=a", "modify reset")
	if len(e.ended) != 1 || e.ended[0] || s.qp.resp.away {
		t.Errorf("%v", e.ended)
	}
}

// A guest answers with its home's M bit, accepts packets over the alternate path, and does not migrate by itself.
func TestX_XRCD_01_GuestHasTheMigrationStateOfItsHome(t *testing.T) {
	s := play(t, "qp xrc", "srq 5", "region A", "recv 1 A+0/10 srq=5", "recv 2 A+0/10 srq=5")
	s.qp.Guest = true
	var bits []bool
	s.shown = func(p wire.Packet) { bits = append(bits, p.BTH().MigReq()) }
	if s.qp.MirrorMigration(link.Path{Src: stageAddr, Dst: altAddr(1)}, Armed); s.qp.baseFlags != 0 {
		t.Errorf("flags %#x", s.qp.baseFlags)
	}
	do(t, s, "in SEND_ONLY psn=100 ackreq srqn=5 data=a from="+altAddr(1).String())
	if s.qp.Path().Dst != peerAddr || s.qp.attr.Mig != Armed {
		t.Errorf("the guest has migrated: %v", s.qp.Path().Dst)
	}
	s.qp.MirrorMigration(link.Path{}, Migrated)
	do(t, s, "in SEND_ONLY psn=101 ackreq srqn=5 data=a")
	if len(bits) != 2 || bits[0] || !bits[1] {
		t.Errorf("M bits %v", bits)
	}
}

// The RNR NAK of a message that comes again for an SRQ of another process is not sent.
func TestX_XRCD_01_TurnWithoutTheNAKOfItsPacket(t *testing.T) {
	_, e := home(t, "in SEND_ONLY psn=100 srqn=5 data=a", "in SEND_ONLY psn=101 srqn=5 data=a",
		"in+ SEND_ONLY psn=102 srqn=5 data=a", "in SEND_ONLY psn=102 srqn=65536 data=a")
	if len(e.turns) != 1 || e.turns[0].tail.kind != tailNone {
		t.Errorf("%+v", e.turns)
	}
}

// COMM_EST comes with the first packet of a connection, wherever its SRQ is, and once.
func TestX_XRCD_01_CommEst(t *testing.T) {
	s := play(t, "qp xrc state=rtr", "srq 5", "region A", "recv 1 A+0/10 srq=5")
	s.qp.Relay = new(noting)
	events := func() int { return strings.Count(strings.Join(s.log, " "), "COMM_EST") }
	do(t, s, "in SEND_ONLY psn=100 srqn=65536 data=a")
	if n := events(); n != 1 {
		t.Errorf("%d events", n)
	}
	s.qp.TakeTurn(Turn{epsn: 101})
	do(t, s, "in SEND_ONLY psn=101 srqn=5 data=a")
	if n := events(); n != 1 {
		t.Errorf("%d events after the turn came back", n)
	}
}

// What a process remembers of repeated requests and of old responses does not outlive its turn.
func TestX_XRCD_01_TurnForgets(t *testing.T) {
	s, _ := home(t, "in READ psn=100 srqn=5 at=A+0/10", "in SEND_ONLY psn=101 srqn=5 data=a",
		"in SEND_ONLY psn=101 srqn=5 data=a")
	acks := 0
	s.shown = func(wire.Packet) { acks++ }
	s.qp.TakeTurn(Turn{epsn: 103, msn: 2})
	do(t, s, "in SEND_ONLY psn=102 srqn=5 data=a") // the first repetition of a new run
	if acks != 1 {
		t.Errorf("%d acknowledgements", acks)
	}
	s.qp.TakeTurn(Turn{epsn: 100 + maxAge + 10})
	if s.qp.resp.kept != 0 {
		t.Error("an old response is kept")
	}
}

// A repeated SEND goes to the process with the turn, which acknowledges it. It is not the READ or atomic of its PSN.
func TestX_XRCD_01_RepeatedSend(t *testing.T) {
	s, e := home(t, "in FETCH_ADD psn=100 srqn=5 at=A+0/8 add=1", "in SEND_ONLY psn=101 srqn=65536 data=a",
		"in SEND_ONLY psn=99 srqn=5 data=a")
	if e.forwarded != 1 || e.repeated != 0 {
		t.Errorf("%d packets forwarded, %d repeated", e.forwarded, e.repeated)
	}
	r := &s.qp.resp
	if r.executed(100, (wire.XRC|wire.SendOnly).Info()) || !r.executed(100, (wire.XRC|wire.FetchAdd).Info()) {
		t.Error("an atomic is taken for a SEND")
	}
}

// The PSN from which repeated requests may belong elsewhere follows the expected one.
func TestX_XRCD_01_OldTurn(t *testing.T) {
	s, _ := home(t)
	r := &s.qp.resp
	r.since = 10
	if s.qp.OnAged(20); r.since != 10 {
		t.Errorf("PSN %d", r.since)
	}
	if s.qp.OnAged(maxAge + 15); r.since != 15 {
		t.Errorf("PSN %d", r.since)
	}
}

// A packet that continues no message is refused where the turn is.
func TestX_XRCD_01_DisorderPassesNoTurn(t *testing.T) {
	s, e := home(t, "in SEND_LAST psn=100 srqn=65536 data=a")
	if len(e.turns) != 0 || s.qp.State() != Err {
		t.Errorf("%d turns, state %d", len(e.turns), s.qp.State())
	}
}

package transport

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	stagePD  = 7
	stageQPN = 0x11
	peerQPN  = 0x22
)

var (
	stageAddr = netip.MustParseAddr("192.0.2.1")
	peerAddr  = netip.MustParseAddr("192.0.2.2")
)

// stage is one QP in a test environment: peer, memory, completion queue, host. The QP's actions are written to log.
type stage struct {
	t       testing.TB
	now     int64
	regions *mr.Table
	named   map[string]*mr.Region
	windows map[string]*mr.Binding
	xrcd    *XRCD
	srqs    map[int]*XRCSRQ
	qp      *QP
	attr    Attr // attributes of its connection
	mask    Mask
	tx      *link.TxBatch
	args    *args
	log     []string
	shown   func(wire.Packet) // called for each sent packet, unless nil
	quiet   bool              // benchmarks and allocation tests: do not log
	cqes    int
}

func newStage(t testing.TB) *stage {
	s := &stage{
		t: t, regions: mr.NewTable(1<<16, mr.Counted()), named: map[string]*mr.Region{}, windows: map[string]*mr.Binding{},
		tx: link.NewTxBatch(64, 64*(wire.MaxPacketLen+wire.ICRCLen)),
	}
	for i := range s.tx.Buf {
		s.tx.Buf[i] = 0xDD // makes unwritten bytes visible
	}
	return s
}

func (s *stage) logf(format string, a ...any) {
	if !s.quiet {
		s.log = append(s.log, fmt.Sprintf(format, a...))
	}
}

// Raise and StateChanged implement Host.
func (s *stage) Raise(_ *QP, ev Event)           { s.logf("event %s", eventNames[ev]) }
func (s *stage) StateChanged(_ *QP, state State) { s.logf("state %s", stateName(state)) }

// Push implements CompletionQueue. Every completion is polled at once.
func (s *stage) Push(e *CQE) {
	notBefore(s.t, s.qp, e)
	if !e.onlyMatch() { // the receive completes later
		s.cqes++
	}
	if e.Tags != nil {
		e.Tags.Polled(e)
	} else if e.RQ != nil {
		e.RQ.Release(1)
	}
	if e.Send {
		s.qp.SQ.Release(e.Slot)
	}
	if s.quiet {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cqe %s id=%d %s", opNames[e.Op], e.WRID, statusNames[e.Status])
	if e.Status != Success {
		if e.Cause != nil {
			fmt.Fprintf(&b, ": %s", e.Cause.Reason)
		}
		s.logf("%s", b.String())
		return
	}
	fmt.Fprintf(&b, " len=%d", e.ByteLen)
	if e.Flags&WithImm != 0 {
		fmt.Fprintf(&b, " imm=%#x", e.Imm)
	}
	if e.Flags&WithInv != 0 {
		fmt.Fprintf(&b, " inv=%#x", e.Imm)
	}
	if e.Flags&WithGRH != 0 {
		fmt.Fprintf(&b, " grh")
	}
	if e.SrcQP != 0 {
		fmt.Fprintf(&b, " src=%#x", e.SrcQP)
	}
	if e.Solicited {
		fmt.Fprintf(&b, " solicited")
	}
	s.logf("%s", b.String())
}

// makeQP creates the QP and moves it to the requested state.
func (s *stage) makeQP(a *args) error {
	kind, ok := map[string]Type{"rc": RC, "uc": UC, "ud": UD, "xrc": XRCRecv}[a.word(0)]
	if !ok {
		return fmt.Errorf("QP type %q", a.word(0))
	}
	c := Config{Num: stageQPN, Type: kind, SigAll: true, Regions: s.regions, Host: s}
	if kind == XRCRecv {
		c.XRCD = s.domain()
	} else {
		c.PD, c.SendCQ, c.RecvCQ, c.SQ = stagePD, s, s, NewSendQueue(64, 4, 64)
		c.RQ = NewRecvQueue(a.num("recvs", 16), 4, a.str("srq", "") == "yes", uint32(a.num("srq_pd", stagePD)))
	}
	s.qp = NewQP(c)
	at := Attr{
		Path: link.Path{Src: stageAddr, Dst: peerAddr}, DestQPN: peerQPN, PKey: 0xFFFF,
		MTU: 256, QKey: 0x11111111, RQPSN: 100, SQPSN: 500, MaxRdAtomic: 4, MaxDestRdAtom: 4,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		Access: accessWrite | accessRead | accessAtomic,
	}
	setAttrs(&at, a)
	mask := ^Mask(0)
	if kind == UD {
		mask &^= MaskAV | MaskDestQPN
	}
	s.attr, s.mask = at, mask
	return s.connect(states[a.str("state", "rts")])
}

// connect moves a QP from RESET to a state.
func (s *stage) connect(last State) error {
	at := s.attr
	for _, st := range []State{Init, RTR, RTS, SQD} {
		if st > last {
			break
		}
		at.State = st
		if err := s.qp.Modify(s.now, &at, s.mask); err != nil {
			return err
		}
	}
	return nil
}

// setAttrs applies the attributes of a command.
func setAttrs(at *Attr, a *args) {
	at.MTU = a.num("mtu", at.MTU)
	at.RQPSN = uint32(a.num("rq_psn", int(at.RQPSN)))
	at.SQPSN = uint32(a.num("sq_psn", int(at.SQPSN)))
	at.MaxDestRdAtom = a.num("dest_rd_atomic", at.MaxDestRdAtom)
	at.MaxRdAtomic = a.num("rd_atomic", at.MaxRdAtomic)
	at.MinRNRTimer = uint8(a.num("min_rnr_timer", int(at.MinRNRTimer)))
	at.QKey = uint32(a.num("qkey", int(at.QKey)))
	if a.has("access") {
		at.Access = uint32(accessOf(a.str("access", "")))
	}
	if a.str("ip", "4") == "6" {
		at.Path.Src, at.Path.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
}

func accessOf(s string) (m mr.Access) {
	for _, c := range s {
		m |= map[rune]mr.Access{'b': mr.MWBind, 'l': mr.LocalWrite, 'w': mr.RemoteWrite, 'r': mr.RemoteRead,
			'a': mr.RemoteAtomic, 'f': mr.FlushGlobal}[c]
	}
	return m
}

// register creates a region: region NAME base=ADDR len=N access=lwra fill=CHARACTER pd=N.
func (s *stage) register(a *args) error {
	r := &mr.Region{
		PD: uint32(a.num("pd", stagePD)), Base: uint64(a.num("base", 0x10000)),
		Access: accessOf(a.str("access", "lwra")), Buf: make([]byte, a.num("len", 4096)),
	}
	copy(r.Buf, bytes.Repeat([]byte(a.str("fill", ".")), len(r.Buf)))
	s.named[a.word(0)] = r
	return s.regions.Add(r)
}

// bindWindow creates and binds a window, or binds one again: window NAME over=NAME+OFFSET/LENGTH [type=2]
// [access=wra] [zero=yes] [qp=other].
func (s *stage) bindWindow(a *args) error {
	b := s.windows[a.word(0)]
	if b == nil {
		w := &mr.Window{PD: stagePD, Type: mr.WindowType(a.num("type", 2))}
		if err := s.regions.AddWindow(w); err != nil {
			return err
		}
		b = &mr.Binding{Window: w, RKey: s.regions.Key(w)}
		s.windows[a.word(0)] = b
	}
	r, off, n, err := s.place(a.str("over", ""))
	if err != nil {
		return err
	}
	b.RKey, b.LKey, b.Addr, b.Length = b.RKey+1, r.LKey, r.Base+off, n
	b.Access = accessOf(a.str("access", "wra"))
	if a.str("zero", "") == "yes" {
		b.Access |= mr.ZeroBased
	}
	id := s.qp.id
	if a.str("qp", "") == "other" {
		id++
	}
	return s.regions.Bind(b, stagePD, id)
}

// reregister changes the rights of a region.
func (s *stage) reregister(a *args) {
	old := s.named[a.word(0)]
	r := *old
	r.Access = accessOf(a.str("access", ""))
	if err := s.regions.Replace(old, &r); err != nil {
		s.t.Fatal(err)
	}
	s.named[a.word(0)] = &r
}

// place parses NAME+OFFSET/LENGTH.
func (s *stage) place(text string) (r *mr.Region, off, n uint64, err error) {
	name, rest, _ := strings.Cut(text, "+")
	r = s.named[name]
	if r == nil {
		return nil, 0, 0, fmt.Errorf("no region %q", name)
	}
	o, l, _ := strings.Cut(rest, "/")
	if o != "" {
		off = uint64(number(o))
	}
	if l != "" {
		n = uint64(number(l))
	}
	return r, off, n, nil
}

// postRecv posts a receive: recv ID NAME+OFFSET/LENGTH ... lkey=NUMBER.
func (s *stage) postRecv(a *args) error {
	var sges []SGE
	for _, w := range a.words[1:] {
		r, off, n, err := s.place(w)
		if err != nil {
			return err
		}
		sges = append(sges, SGE{Addr: r.Base + off, Length: uint32(n), LKey: uint32(a.num("lkey", int(r.LKey)))})
	}
	q := s.qp.RQ
	if a.has("srq") {
		q = s.srqs[a.num("srq", 0)].Queue
	}
	if err := q.Post(uint64(number(a.word(0))), sges); err != nil {
		return err
	}
	s.qp.OnDoorbell(s.now)
	return nil
}

func (s *stage) showMemory(a *args) error {
	r, off, n, err := s.place(a.word(0))
	if err != nil {
		return err
	}
	if a.word(1) == "uint64" {
		s.logf("%d", mr.Load(r.Buf[off:off+8]))
		return nil
	}
	s.logf("%s", dataText(r.Buf[off:off+n]))
	return nil
}

// fillMemory writes into a region: fill NAME+OFFSET data=... or fill NAME+OFFSET uint64=N.
func (s *stage) fillMemory(a *args) error {
	r, off, _, err := s.place(a.word(0))
	if err != nil {
		return err
	}
	if a.has("uint64") {
		mr.Store(r.Buf[off:], uint64(a.num("uint64", 0)))
		return nil
	}
	copy(r.Buf[off:], parseData(a.str("data", "")))
	return nil
}

// modify moves the QP to RESET or ERR.
func (s *stage) modify(a *args) error {
	st, ok := states[a.word(0)]
	if !ok {
		return fmt.Errorf("no such state")
	}
	return s.qp.Modify(s.now, &Attr{State: st}, MaskState)
}

// packetIn delivers a packet of the peer.
func (s *stage) packetIn(a *args) error {
	prefix := s.qp.prefix()
	op, ok := opcodes[a.word(0)]
	if !ok {
		return fmt.Errorf("no opcode %q", a.word(0))
	}
	q := wire.Fields{
		Opcode: prefix | op, PKey: uint16(a.num("pkey", wire.DefaultPKey)), DestQPN: stageQPN, PSN: uint32(a.num("psn", 0)),
		QKey: uint32(a.num("qkey", 0x11111111)), SrcQPN: uint32(a.num("src", peerQPN)),
		Syndrome: uint8(a.num("syndrome", wire.SynAck)), MSN: uint32(a.num("msn", 0)), Orig: uint64(a.num("orig", 0)),
		SwapAdd: uint64(a.num("add", a.num("swap", 0))), Compare: uint64(a.num("compare", 0)),
		SRQN: uint32(
			a.num("srqn", 0),
		), Imm: uint32(a.num("imm", 0)), Placement: uint8(a.num("placement", 0)), Selectivity: uint8(a.num("selectivity",
			0)), InvKey: uint32(a.num("inv", 0)), Payload: parseData(a.str("data", "")),
	}
	for _, w := range a.words[1:] {
		switch w {
		case "ackreq":
			q.AckReq = true
		case "solicited":
			q.Solicited = true
		default:
			return fmt.Errorf("no flag %q", w)
		}
	}
	if a.has("at") {
		r, off, n, err := s.place(a.str("at", ""))
		if err != nil {
			return err
		}
		q.Addr, q.RKey, q.DMALen = r.Base+off, r.RKey, uint32(n)
	}
	q.Addr = uint64(a.num("va", int(q.Addr)))
	if w := s.windows[a.str("via", "")]; w != nil {
		q.RKey = w.RKey
	}
	if w := s.windows[a.str("invalidate", "")]; w != nil {
		q.InvKey = w.RKey
	}
	q.RKey = uint32(a.num("rkey", int(q.RKey)))
	q.DMALen = uint32(a.num("len", int(q.DMALen)))
	p, err := wire.Parse(q.Build())
	if err != nil {
		return err
	}
	s.deliver(p, a.str("from", ""))
	return nil
}

func (s *stage) deliver(p wire.Packet, from string) {
	rx := link.RxPacket{Data: p, Src: peerAddr, Dst: stageAddr, HopLimit: 64}
	if s.qp.path != nil {
		rx.Src, rx.Dst = s.qp.path.Dst, s.qp.path.Src
	}
	if from != "" {
		rx.Src = netip.MustParseAddr(from)
		if rx.Src.Is6() {
			rx.Dst = netip.MustParseAddr("2001:db8::1")
		}
	}
	s.qp.OnPacket(s.now, &rx)
}

// transmit lets the QP send at most budget packets, in batches as the engine does.
func (s *stage) transmit(budget int) {
	for budget > 0 {
		more := s.qp.Transmit(s.now, s.tx, min(budget, 16))
		n := len(s.tx.Packets)
		if n > budget {
			s.t.Fatalf("%d packets for a budget of %d", n, budget)
		}
		budget -= n
		for i := range n {
			b := s.tx.Bytes(i)
			s.showPacket(b[:len(b)-wire.ICRCLen])
		}
		s.tx.Reset()
		if !more {
			break
		}
		if n == 0 {
			s.t.Fatal("Transmit wants to go on but sends nothing")
		}
	}
	if budget > 0 && s.qp.resp.pending() {
		s.t.Fatal("the responder has more to send but did not say so")
	}
}

// showPacket logs a sent packet.
func (s *stage) showPacket(b []byte) {
	if s.quiet {
		return
	}
	p, err := wire.Parse(b)
	if err != nil {
		s.t.Fatalf("the QP sent a bad packet: %v: % x", err, b)
	}
	if s.shown != nil {
		s.shown(p)
	}
	h, in := p.BTH(), p.Info()
	out := fmt.Sprintf("> %s psn=%s", strings.TrimSpace(strings.TrimPrefix(in.Name[2:], "C")), psnText(h.PSN()))
	if h.AckReq() {
		out += " ackreq"
	}
	if h.Solicited() {
		out += " solicited"
	}
	if in.AETH != 0 {
		out += " " + syndromeText(p.AETH()) + fmt.Sprintf(" msn=%d", p.AETH().MSN())
	}
	if in.AtomicAck != 0 {
		out += fmt.Sprintf(" orig=%d", p.AtomicAck())
	}
	if h := p.RETH(); h != nil {
		out += fmt.Sprintf(" va=%#x rkey=%#x len=%d", h.Addr(), h.RKey(), h.DMALen())
	}
	if h := p.AtomicETH(); h != nil {
		out += fmt.Sprintf(" va=%#x rkey=%#x swap/add=%d compare=%d", h.Addr(), h.RKey(), h.SwapAdd(), h.Compare())
	}
	if in.Imm != 0 {
		out += fmt.Sprintf(" imm=%#x", p.Imm())
	}
	if in.IETH != 0 {
		out += fmt.Sprintf(" inv=%#x", p.IETH())
	}
	for _, c := range p[len(p)-h.Pad():] {
		if c != 0 {
			s.t.Errorf("pad bytes of %v are not 0", p)
		}
	}
	if d := p.Payload(); len(d) > 0 {
		out += " data=" + dataText(d)
	}
	if s.qp.Type != UD && (h.DestQPN() != peerQPN || h.PKey() != 0xFFFF) {
		s.t.Errorf("%s: destination QPN %#x, P_Key %#x", out, h.DestQPN(), h.PKey())
	}
	s.logf("%s", out)
}

func syndromeText(h wire.AETH) string {
	switch {
	case h.Syndrome() == wire.SynAck:
		return "ack"
	case h.IsRNR():
		return fmt.Sprintf("RNR timer=%d", h.Timer())
	case h.Syndrome() >= wire.SynSeqErr && h.Syndrome() <= wire.SynOpErr:
		return "NAK " + [...]string{"sequence", "invalid request", "remote access",
			"remote operational"}[h.Syndrome()-wire.SynSeqErr]
	}
	return fmt.Sprintf("syndrome %#x", h.Syndrome())
}

// showCounters logs the non-zero counters.
func (s *stage) showCounters() {
	v := reflect.ValueOf(s.qp.Totals())
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Anonymous {
			continue
		}
		if n := v.FieldByIndex(f.Index).Uint(); n != 0 {
			s.logf("%s %d", f.Name, n)
		}
	}
}

var states = map[string]State{"reset": Reset, "init": Init, "rtr": RTR, "rts": RTS, "sqd": SQD, "sqe": SQE, "err": Err}

func stateName(s State) string {
	for k, v := range states {
		if v == s {
			return strings.ToUpper(k)
		}
	}
	return "?"
}

var opcodes = map[string]wire.Opcode{
	"SEND_FIRST": wire.SendFirst, "SEND_MIDDLE": wire.SendMiddle, "SEND_LAST": wire.SendLast,
	"SEND_LAST_IMM": wire.SendLastImm,
	"SEND_ONLY":     wire.SendOnly, "SEND_ONLY_IMM": wire.SendOnlyImm, "SEND_LAST_INV": wire.SendLastInv,
	"SEND_ONLY_INV": wire.SendOnlyInv,
	"WRITE_FIRST":   wire.WriteFirst, "WRITE_MIDDLE": wire.WriteMiddle, "WRITE_LAST": wire.WriteLast,
	"WRITE_LAST_IMM": wire.WriteLastImm,
	"WRITE_ONLY":     wire.WriteOnly, "WRITE_ONLY_IMM": wire.WriteOnlyImm,
	"READ": wire.ReadRequest, "CMP_SWAP": wire.CompareSwap, "FETCH_ADD": wire.FetchAdd,
	"FLUSH": wire.Flush, "ATOMIC_WRITE": wire.AtomicWrite,
	"READ_RESP_FIRST": wire.ReadRespFirst, "READ_RESP_MIDDLE": wire.ReadRespMiddle, "READ_RESP_LAST": wire.ReadRespLast,
	"READ_RESP_ONLY": wire.ReadRespOnly,
	"ACK":            wire.Ack, "ATOMIC_ACK": wire.AtomicAck,
}

var eventNames = map[Event]string{
	EventQPFatal: "QP_FATAL", EventQPReqErr: "QP_REQ_ERR", EventQPAccessErr: "QP_ACCESS_ERR", EventCommEst: "COMM_EST",
	EventSQDrained: "SQ_DRAINED", EventSRQErr: "SRQ_ERR", EventSRQLimitReached: "SRQ_LIMIT_REACHED",
	EventQPLastWQEReached: "QP_LAST_WQE_REACHED",
}

var opNames = map[CQOp]string{
	CQSend: "send", CQWrite: "write", CQRead: "read", CQCompSwap: "comp_swap", CQFetchAdd: "fetch_add",
	CQBindMW: "bind_mw", CQLocalInv: "local_inv",
	CQFlush: "flush", CQAtomicWrite: "atomic_write", CQRecv: "recv", CQRecvRDMAImm: "recv_rdma_with_imm",
}

var statusNames = map[Status]string{
	Success: "SUCCESS", LocLenErr: "LOC_LEN_ERR", LocQPOpErr: "LOC_QP_OP_ERR", LocProtErr: "LOC_PROT_ERR",
	WRFlushErr: "WR_FLUSH_ERR",
	MWBindErr:  "MW_BIND_ERR", BadRespErr: "BAD_RESP_ERR", LocAccessErr: "LOC_ACCESS_ERR", RemInvReqErr: "REM_INV_REQ_ERR",
	RemAccessErr: "REM_ACCESS_ERR", RemOpErr: "REM_OP_ERR", RetryExcErr: "RETRY_EXC_ERR",
	RNRRetryExcErr: "RNR_RETRY_EXC_ERR",
	RemAbortErr:    "REM_ABORT_ERR", FatalErr: "FATAL_ERR", GeneralErr: "GENERAL_ERR",
}

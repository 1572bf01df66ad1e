package cm

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// The stage of a transcript: one machine at hereAddr, whose communication IDs are a1, a2, ... and PSNs 1001, 1002,
// ...; messages come from thereAddr by default.
var (
	hereAddr  = netip.MustParseAddr("10.0.0.1")
	thereAddr = netip.MustParseAddr("10.0.0.2")
)

const (
	hereGUID  = 0x1111
	thereGUID = 0x2222
)

type stage struct {
	t         *testing.T
	m         *Machine
	now       int64
	ids       map[string]*ID
	listeners map[string]*Listener
	log       []string
	out       Batch
	before    Counters
	sent      map[[wire.MADLen]byte]bool // to show what is sent again in short
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, ids: map[string]*ID{}, listeners: map[string]*Listener{}, sent: map[[wire.MADLen]byte]bool{}}
	s.machine(Config{})
	return s
}

func (s *stage) machine(cfg Config) {
	cfg.GUID, cfg.AckDelay = hereGUID, 15
	s.m = New(cfg)
	id, psn := uint32(0xA0), uint32(0x1000)
	s.m.newID = func() uint32 { id++; return id }
	s.m.newPSN = func() uint32 { psn++; return psn }
}

func (s *stage) logf(format string, a ...any) { s.log = append(s.log, fmt.Sprintf(format, a...)) }

// commands are those that make a call with an ID.
var commands = map[string]func(s *stage, id *ID, a *args) error{
	"connect": func(s *stage, id *ID, a *args) error { return s.m.Connect(s.now, id, connectArgs(a), &s.out) },
	"accept": func(s *stage, id *ID, a *args) error {
		return s.m.Accept(s.now, id, &AcceptParams{
			QPN: uint32(a.hex("qp", 0x22)), SRQ: a.is("srq"), FlowControl: a.is("flow"),
			ResponderResources: uint8(a.num("resources", 4)),
			InitiatorDepth:     uint8(a.num("depth", 4)), RNRRetry: uint8(a.num("rnr", 7)), Private: a.bytes("private"),
			ECE: eceArg(a),
		}, &s.out)
	},
	"establish": func(s *stage, id *ID, a *args) error { return s.m.Establish(id, a.bytes("private"), &s.out) },
	"notify":    func(s *stage, id *ID, a *args) error { return s.m.Notify(id, &s.out) },
	"reject": func(s *stage, id *ID, a *args) error {
		return s.m.Reject(s.now, id, cmmsg.Reason(a.num("reason", 28)), a.bytes("ari"), a.bytes("private"), &s.out)
	},
	"delay": func(s *stage, id *ID, a *args) error {
		return s.m.Delay(id, uint8(a.num("code", 22)), a.bytes("private"), &s.out)
	},
	"disconnect": func(s *stage, id *ID, a *args) error { return s.m.Disconnect(s.now, id, a.bytes("private"), &s.out) },
	"lookup": func(s *stage, id *ID, a *args) error {
		return s.m.Lookup(s.now, id, &LookupParams{
			Service: serviceArg(a, cmmsg.PSUDP), Path: pathArg(a), Timeout: uint8(a.num("timeout", 0)),
			MaxRetries: uint8(a.num("retries", 0)), Private: a.bytes("private"),
		}, &s.out)
	},
	"answer": func(s *stage, id *ID, a *args) error {
		return s.m.Answer(s.now, id, &AnswerParams{
			Status: cmmsg.SIDRStatus(a.num("status", 0)), QPN: uint32(a.hex("qp", 0x77)),
			QKey: uint32(a.hex("qkey", 0x01234567)),
			Info: a.bytes("info"), Private: a.bytes("private"), ECE: eceArg(a),
		}, &s.out)
	},
	"load-path": func(s *stage, id *ID, a *args) error {
		p := pathArg(a)
		return s.m.LoadPath(s.now, id, &p, uint8(a.num("timeout", 0)), a.bytes("private"), &s.out)
	},
	"answer-path": func(s *stage, id *ID, a *args) error {
		return s.m.AnswerPath(id, cmmsg.APRStatus(a.num("status", 0)), a.bytes("info"), a.bytes("private"), &s.out)
	},
	"destroy": func(s *stage, id *ID, _ *args) error { s.m.Destroy(s.now, id, &s.out); return nil },
	"taken":   func(s *stage, id *ID, _ *args) error { s.m.Taken(id); return nil },
}

// do performs one command.
func (s *stage) do(cmd string, a *args) error {
	if call, ok := commands[cmd]; ok {
		id := s.ids[a.word(0)]
		if id == nil {
			id = s.m.NewID(nil)
			s.ids[a.word(0)] = id
		}
		s.outcome(call(s, id, a))
		s.show("")
		return nil
	}
	switch cmd {
	case "machine":
		s.machine(Config{MaxIDs: int(a.num("max", 0)), MRATimeout: uint8(a.num("mra", 0)), Agent: uint32(a.hex("agent", 0)),
			HasPKey: partitionArg(a)})
	case "listen":
		err := s.listen(a)
		s.show(a.str("as", ""))
		return err
	case "unlisten":
		s.m.Unlisten(s.now, s.listeners[a.word(0)])
	case "in":
		s.receive(a, s.message(a))
		s.show(a.str("as", ""))
	case "damaged":
		s.receive(a, damage(a, s.message(a)))
		s.show("")
	case "time":
		d, err := time.ParseDuration(a.word(0))
		if err != nil {
			return err
		}
		s.pass(int64(d))
	case "death":
		d := Death{Peer: thereAddr, RemoteQPN: uint32(a.hex("qp", 0x22)), LocalQPN: uint32(a.hex("ours", 0x11))}
		if v := a.str("src", ""); v != "" {
			d.Peer = netip.MustParseAddr(v)
		}
		s.m.OnDeath(s.now, []Death{d}, &s.out)
		s.show("")
	case "state":
		id := s.ids[a.word(0)]
		s.logf("%v, id %x, peer's %x", id.State(), id.LocalID(), id.RemoteID())
	case "attrs":
		s.logf("%+v", s.ids[a.word(0)].Attrs())
	case "path":
		p := s.ids[a.word(0)].Path()
		s.logf("{Path:{Src:%v Dst:%v TClass:%d HopLimit:%d FlowLabel:%d} PKey:%d MTU:%v SL:%d Rate:%d LifeTime:%d}",
			p.Src, p.Dst, p.TClass, p.HopLimit, p.FlowLabel, p.PKey, p.MTU, p.SL, p.Rate, p.LifeTime)
	case "counters":
		s.counters()
	case "tables":
		s.tables()
	default:
		return errors.New("no such command")
	}
	return nil
}

// partitionArg is Config.HasPKey of a port that is in the partition pkey= and in the default one.
func partitionArg(a *args) func(netip.Addr, uint16) bool {
	key := uint16(a.hex("pkey", 0))
	if key == 0 {
		return nil
	}
	return func(_ netip.Addr, k uint16) bool { return k == key || k == wire.DefaultPKey }
}

func (s *stage) outcome(err error) {
	if err != nil {
		s.logf("error: %v", err)
	}
}

func (s *stage) listen(a *args) error {
	ps := cmmsg.PSTCP
	switch {
	case a.is("ib"):
		ps = cmmsg.PSIB
	case a.is("ud"):
		ps = cmmsg.PSUDP
	}
	p := ListenParams{Service: serviceArg(a, ps), UD: a.is("ud"), AFOnly: a.is("afonly"), GID: a.is("gid"),
		Kind: kindArg(a)}
	if v := a.str("addr", ""); v != "" {
		p.Addr = netip.MustParseAddr(v)
	}
	if n := a.num("backlog", 0); n != 0 {
		p.Backlog = NewBacklog(int(n))
	}
	l, err := s.m.Listen(s.now, p, &s.out)
	s.outcome(err)
	if err == nil {
		l.Context = a.word(0)
		s.listeners[a.word(0)] = l
	}
	return nil
}

// receive passes a datagram to the machine.
func (s *stage) receive(a *args, mad []byte) {
	src, dst := thereAddr, hereAddr
	if v := a.str("src", ""); v != "" {
		src = netip.MustParseAddr(v)
	}
	if v := a.str("dst", ""); v != "" {
		dst = netip.MustParseAddr(v)
	}
	wanted := s.m.Wants(src, mad)
	s.m.OnMAD(s.now, 0, src, dst, mad, &s.out)
	if a.is("wanted") {
		s.logf("wanted: %v", wanted)
	}
}

// show logs the output of the machine; as names the ID of a new request.
func (s *stage) show(as string) {
	for _, mail := range s.out.Mail {
		to := ""
		if mail.Path.Dst != thereAddr || mail.Path.Src != hereAddr {
			to = fmt.Sprintf(" (%v to %v)", mail.Path.Src, mail.Path.Dst)
		}
		msg := cmmsg.Msg(mail.MAD[:])
		if s.sent[mail.MAD] {
			s.logf("> %v again, id=%08x%s", msg.Kind(), msg.LocalID(), to)
			continue
		}
		s.sent[mail.MAD] = true
		s.logf("> %v tid=%x%s", msg, msg.TID(), to)
	}
	for _, e := range s.out.Events {
		if e.Listener != nil {
			if as == "" {
				as = fmt.Sprintf("id%x", e.ID.LocalID())
			}
			s.ids[as] = e.ID
			s.logf("event %v: %s, for listener %v", e.Type, as, e.Listener.Context)
			continue
		}
		s.logf("event %v: %s is %v", e.Type, s.name(e.ID), e.ID.State())
	}
	s.out.Reset()
}

func (s *stage) name(id *ID) string {
	for name, i := range s.ids {
		if i == id {
			return name
		}
	}
	return "?"
}

// pass lets time pass. What timers do is logged with the time since the stage was set up.
func (s *stage) pass(d int64) {
	end := s.now + d
	for s.m.NextDeadline() <= end {
		s.now = s.m.NextDeadline()
		s.m.OnTimer(s.now, &s.out)
		from := len(s.log)
		s.show("")
		for i := range s.log[from:] {
			s.log[from+i] = fmt.Sprintf("%.3f s: %s", float64(s.now)/1e9, s.log[from+i])
		}
	}
	s.now = end
}

// counters logs the counters that have changed since the last call, except those of traffic.
func (s *stage) counters() {
	c, b := s.m.Counters, s.before
	for k := cmmsg.KindREQ; k <= cmmsg.KindAPR; k++ {
		if n := c.TxRetries.Of(k) - b.TxRetries.Of(k); n > 0 {
			s.logf("TxRetries %v %d", k, n)
		}
		if n := c.RxDuplicates.Of(k) - b.RxDuplicates.Of(k); n > 0 {
			s.logf("RxDuplicates %v %d", k, n)
		}
	}
	for _, x := range []struct {
		name string
		n    uint64
	}{
		{"RxMalformed", c.RxMalformed - b.RxMalformed}, {"RxInvalid", c.RxInvalid - b.RxInvalid}, {"RxSpoofed",
			c.RxSpoofed - b.RxSpoofed},
		{"RxUnmatched", c.RxUnmatched - b.RxUnmatched}, {"Stale", c.Stale - b.Stale}, {"BacklogFull",
			c.BacklogFull - b.BacklogFull},
		{"TableFull", c.TableFull - b.TableFull},
		{"Flooded", c.Flooded - b.Flooded}, {"Evicted", c.Evicted - b.Evicted},
		{"Deaths", c.Deaths - b.Deaths},
	} {
		if x.n > 0 {
			s.logf("%s %d", x.name, x.n)
		}
	}
	s.before = c
}

func (s *stage) tables() {
	m := s.m
	s.logf("%d live, %d IDs, %d peers, %d QPs, %d look-ups, %d timers, %d kept answers", m.live, len(m.ids), len(m.peers),
		len(m.qps), len(m.sidr), len(m.timers), m.kept)
}

func connectArgs(a *args) *ConnectParams {
	return &ConnectParams{
		Service: serviceArg(a, cmmsg.PSTCP), Path: pathArg(a), Transport: kindArg(a), QPN: uint32(a.hex("qp", 0x11)),
		SRQ:         a.is("srq"),
		FlowControl: a.is("flow"), ResponderResources: uint8(a.num("resources", 4)), InitiatorDepth: uint8(a.num("depth", 4)),
		RetryCount: uint8(a.num("retry", 7)), RNRRetry: uint8(a.num("rnr", 7)),
		RemoteTimeout: uint8(a.num("remote-timeout", 0)),
		LocalTimeout:  uint8(a.num("local-timeout", 0)), MaxRetries: uint8(a.num("retries", 0)), Private: a.bytes("private"),
		ECE: eceArg(a),
	}
}

func pathArg(a *args) Path {
	p := Path{Path: link.Path{Src: hereAddr, Dst: thereAddr}}
	p.MTU = uint8(a.num("mtu", 3))
	p.LifeTime = uint8(a.num("life", 0))
	p.HopLimit = uint8(a.num("hops", 0))
	p.TClass = uint8(a.hex("tclass", 0))
	p.FlowLabel = uint32(a.hex("label", 0))
	p.SL = uint8(a.num("sl", 0))
	if v := a.str("path-to", ""); v == "none" {
		p.Dst = netip.Addr{}
	} else if v != "" {
		p.Dst = netip.MustParseAddr(v)
	}
	return p
}

func serviceArg(a *args, ps cmmsg.PortSpace) cmmsg.ServiceID {
	return ps.Service(uint16(a.num("port", 7471)))
}

func kindArg(a *args) cmmsg.Transport {
	for k, v := range map[string]cmmsg.Transport{"uc": cmmsg.UC, "xrc": cmmsg.XRC, "rd": cmmsg.RD} {
		if a.is(k) {
			return v
		}
	}
	return cmmsg.RC
}

func eceArg(a *args) cmmsg.ECE {
	return cmmsg.ECE{Vendor: uint32(a.hex("ece-vendor", 0)), Options: uint32(a.hex("ece-options", 0))}
}

// message builds a message that comes in. The first word is the kind.
func (s *stage) message(a *args) []byte {
	kind, ok := map[string]cmmsg.Kind{}, false
	for k := cmmsg.KindREQ; k <= cmmsg.KindAPR; k++ {
		kind[k.String()] = k
	}
	k, ok := kind[strings.ToUpper(a.word(0))]
	if !ok {
		panic("no message " + a.word(0))
	}
	msg := cmmsg.Make(make([]byte, wire.MADLen), k, a.hex("tid", 0x77))
	id, to := uint32(a.hex("id", 0xB1)), uint32(a.hex("to", 0xA1))
	d := msg.Data()
	switch k {
	case cmmsg.KindREQ:
		cmmsg.REQ(d).Put(requestArgs(a, id))
	case cmmsg.KindREP:
		qp := uint32(a.hex("qp", 0x33))
		f := cmmsg.REPFields{
			LocalID: id, RemoteID: to, LocalQPN: qp, StartPSN: uint32(a.hex("psn", 0x2000)),
			ResponderResources: uint8(a.num("resources", 3)),
			InitiatorDepth:     uint8(a.num("depth", 2)), TargetAckDelay: uint8(a.num("ack-delay", 15)),
			RNRRetry: uint8(a.num("rnr", 6)), LocalGUID: a.hex("guid", thereGUID),
		}
		if a.is("xrc") {
			f.LocalQPN, f.LocalEECN = 0, qp
		}
		cmmsg.REP(d).Put(f)
	case cmmsg.KindMRA:
		cmmsg.MRA(d).Put(id, to, aboutArg(a), uint8(a.num("code", 22)))
	case cmmsg.KindREJ:
		var ari []byte
		if g := a.hex("ari-guid", 0); g != 0 {
			ari = be.AppendUint64(nil, g)
		}
		cmmsg.REJ(d).Put(id, to, aboutArg(a), cmmsg.Reason(a.num("reason", 28)), ari)
	case cmmsg.KindRTU:
		cmmsg.RTU(d).Put(id, to)
	case cmmsg.KindDREQ:
		cmmsg.DREQ(d).Put(id, to, uint32(a.hex("qp", 0x11)))
	case cmmsg.KindDREP:
		cmmsg.DREP(d).Put(id, to)
	case cmmsg.KindSIDRREQ:
		cmmsg.SIDRREQ(d).Put(id, uint16(a.hex("pkey", 0xFFFF)), serviceArg(a, cmmsg.PSUDP))
	case cmmsg.KindSIDRREP:
		cmmsg.SIDRREP(d).Put(cmmsg.SIDRREPFields{
			RequestID: to, Status: cmmsg.SIDRStatus(a.num("status", 0)), QPN: uint32(a.hex("qp", 0x33)),
			ServiceID: serviceArg(a, cmmsg.PSUDP), QKey: uint32(a.hex("qkey", 0x01234567)),
		})
	case cmmsg.KindLAP:
		p := Path{Path: link.Path{Src: thereAddr, Dst: hereAddr}}
		cmmsg.LAP(d).Put(id, to, uint32(a.hex("qp", 0x11)), 20, p.fields(17))
	case cmmsg.KindAPR:
		cmmsg.APR(d).Put(id, to, cmmsg.APRStatus(a.num("status", 0)), nil)
	}
	private := a.bytes("private")
	if k == cmmsg.KindREQ || k == cmmsg.KindSIDRREQ {
		private = ipHeaderArg(a, private)
	}
	msg.SetPrivate(private)
	return msg
}

func requestArgs(a *args, id uint32) cmmsg.REQFields {
	p := Path{Path: link.Path{Src: thereAddr, Dst: hereAddr, HopLimit: 64}}
	if v := a.str("gid", ""); v != "" {
		p.Src = netip.MustParseAddr(v)
	}
	if v := a.str("to-gid", ""); v != "" {
		p.Dst = netip.MustParseAddr(v)
	}
	p.TClass, p.FlowLabel, p.SL = uint8(a.hex("tclass", 0)), uint32(a.hex("label", 0)), uint8(a.num("sl", 0))
	return cmmsg.REQFields{
		LocalID: id, ServiceID: serviceArg(a, cmmsg.PSTCP), LocalGUID: a.hex("guid", thereGUID),
		LocalQPN:           uint32(a.hex("qp", 0x33)),
		ResponderResources: uint8(a.num("resources", 3)), InitiatorDepth: uint8(a.num("depth", 2)), RemoteTimeout: 20,
		LocalTimeout: uint8(a.num("timeout", 20)), Transport: kindArg(a), StartPSN: uint32(a.hex("psn", 0x2000)),
		RetryCount: uint8(a.num("retry", 5)),
		RNRRetry:   uint8(a.num("rnr", 6)), PKey: uint16(a.hex("pkey", 0xFFFF)), MTU: uint8(a.num("mtu", 3)),
		MaxRetries: uint8(a.num("retries", 2)), Primary: p.fields(uint8(a.num("ack", 17))),
	}
}

// ipHeaderArg puts rdma_cm's addresses in front of private data: from=, that of the packet without it, and at=,
// header=none for none, version= for another one.
func ipHeaderArg(a *args, private []byte) []byte {
	from := a.str("from", cmp.Or(a.pairs["src"], thereAddr.String()))
	at := a.str("at", hereAddr.String())
	version := uint8(a.num("version", 0))
	if a.str("header", "") == "none" {
		return private
	}
	h := cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(netip.MustParseAddr(from), 5000), netip.MustParseAddr(at))
	h[0] = version
	return append(h, private...)
}

func aboutArg(a *args) cmmsg.About {
	return map[string]cmmsg.About{"REQ": cmmsg.AboutREQ, "REP": cmmsg.AboutREP,
		"other": cmmsg.AboutOther}[a.str("about", "REQ")]
}

// damage changes a datagram: byte I=V, or a length.
func damage(a *args, mad []byte) []byte {
	if n := a.num("len", 0); n != 0 {
		return append(mad, make([]byte, 256)...)[:n]
	}
	mad[a.num("byte", 0)] = byte(a.hex("to-byte", 0))
	return mad
}

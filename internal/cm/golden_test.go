package cm

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// captured is a CM message that a Linux peer sent.
type captured struct {
	n        int
	src, dst netip.Addr
	msg      cmmsg.Msg
}

// sessions splits a capture by the communication ID of the side that began.
func sessions(t testing.TB, name string) (all [][]captured) {
	index := map[uint32]int{}
	for _, p := range captures.Read(t, name) {
		if wire.Packet(p.Body()).BTH().DestQPN() != wire.GSIQPN {
			continue
		}
		msg, err := cmmsg.Parse(wire.Packet(p.Body()).Payload())
		if err != nil {
			t.Fatalf("packet %d: %v", p.N, err)
		}
		i, ok := index[msg.LocalID()]
		if !ok {
			i, ok = index[msg.RemoteID()]
		}
		if !ok {
			i = len(all)
			all = append(all, nil)
			index[msg.LocalID()] = i
		}
		all[i] = append(all[i], captured{p.N, p.Src, p.Dst, msg})
	}
	return all
}

// TestGoldenReplay plays each captured session twice: once as the side that connects, once as the one that listens.
// The machine gets the messages of the peer and the calls that the program must have made. Its output must be
// Linux's, byte by byte, except the transaction IDs of its own requests.
func TestGoldenReplay(t *testing.T) {
	count := 0
	for _, name := range captures.Names(t) {
		for _, session := range sessions(t, name) {
			count++
			t.Run(name+"/active", func(t *testing.T) { newReplay(t, session, true).run() })
			t.Run(name+"/passive", func(t *testing.T) { newReplay(t, session, false).run() })
		}
	}
	if count != 10 {
		t.Errorf("the captures hold %d sessions, want 10", count)
	}
}

// replay is one session from the view of one side.
type replay struct {
	t       *testing.T
	m       *Machine
	id      *ID
	active  bool
	session []captured
	out     Batch
	now     int64
}

func newReplay(t *testing.T, session []captured, active bool) *replay {
	r := &replay{t: t, active: active, session: session}
	if !active {
		r.untangle()
	}
	r.m = New(Config{AckDelay: 15})
	var ids, psns []uint32
	for _, c := range session {
		d := c.msg.Data()
		switch k := c.msg.Kind(); {
		case k == cmmsg.KindREQ && active:
			ids, psns, r.m.cfg.GUID = append(ids, cmmsg.REQ(d).LocalID()), append(psns, cmmsg.REQ(d).StartPSN()),
				cmmsg.REQ(d).LocalGUID()
		case k == cmmsg.KindREP && !active:
			ids, psns, r.m.cfg.GUID = append(ids, cmmsg.REP(d).LocalID()), append(psns, cmmsg.REP(d).StartPSN()),
				cmmsg.REP(d).LocalGUID()
		case k == cmmsg.KindSIDRREQ:
			ids = append(ids, c.msg.LocalID())
		}
	}
	force(&r.m.newID, ids)
	force(&r.m.newPSN, psns)
	return r
}

// force makes f return the listed values first.
func force(f *func() uint32, list []uint32) {
	old := *f
	*f = func() uint32 {
		if len(list) == 0 {
			return old()
		}
		n := list[0]
		list = list[1:]
		return n
	}
}

// untangle puts our DREQ before the peer's when both crossed: that we sent one shows that the peer's had not come.
func (r *replay) untangle() {
	for i := 1; i < len(r.session); i++ {
		a, b := r.session[i-1], r.session[i]
		if a.msg.Kind() == cmmsg.KindDREQ && b.msg.Kind() == cmmsg.KindDREQ {
			r.session[i-1], r.session[i] = b, a
			return
		}
	}
}

func (r *replay) run() {
	first := r.session[0]
	r.listen(first)
	for _, c := range r.session {
		r.now += millisecond
		ours := (c.src == first.src) == r.active
		if !ours {
			r.m.OnMAD(r.now, 0, c.src, c.dst, c.msg, &r.out)
			r.events()
			continue
		}
		if len(r.out.Mail) == 0 {
			r.call(c)
		}
		r.compare(c)
	}
	if len(r.out.Mail) > 0 {
		r.t.Errorf("left over: %v", cmmsg.Msg(r.out.Mail[0].MAD[:]))
	}
	// In the end nothing is left.
	for r.m.NextDeadline() != Never {
		r.m.OnTimer(r.m.NextDeadline(), &r.out)
	}
	if len(r.out.Mail) > 0 {
		r.t.Errorf("sent afterwards: %v", cmmsg.Msg(r.out.Mail[0].MAD[:]))
	}
	checkEmpty(r.t, r.m)
}

// events takes the ID of a request that has come.
func (r *replay) events() {
	for _, e := range r.out.Events {
		if e.Type == EventREQ || e.Type == EventSIDRREQ {
			r.id = e.ID
			r.m.Taken(e.ID)
		}
	}
	clear(r.out.Events)
	r.out.Events = r.out.Events[:0]
}

// listen listens for the session's first request, unless Linux refused it.
func (r *replay) listen(first captured) {
	p := ListenParams{}
	switch first.msg.Kind() {
	case cmmsg.KindREQ:
		p.Service = cmmsg.REQ(first.msg.Data()).ServiceID()
	case cmmsg.KindSIDRREQ:
		p.Service, p.UD = cmmsg.SIDRREQ(first.msg.Data()).ServiceID(), true
	}
	if r.active || r.session[1].msg.Kind() == cmmsg.KindREJ {
		return
	}
	if _, err := r.m.Listen(0, p, new(Batch)); err != nil {
		r.t.Fatal(err)
	}
}

// compare compares the next output with Linux's.
func (r *replay) compare(c captured) {
	r.t.Helper()
	if len(r.out.Mail) == 0 {
		r.t.Fatalf("packet %d: nothing goes out, Linux sent %v", c.n, c.msg)
	}
	mail := r.out.Mail[0]
	r.out.Mail = append(r.out.Mail[:0], r.out.Mail[1:]...)
	switch c.msg.Kind() {
	case cmmsg.KindREQ, cmmsg.KindDREQ, cmmsg.KindSIDRREQ:
		copy(mail.MAD[8:16], c.msg[8:16])
		if c.msg.Kind() != cmmsg.KindDREQ {
			r.id.tid = c.msg.TID()
		}
	}
	if !bytes.Equal(mail.MAD[:], c.msg) {
		r.t.Errorf("packet %d:\nsent  %v\nLinux %v\n% x\n% x", c.n, cmmsg.Msg(mail.MAD[:]), c.msg, mail.MAD, []byte(c.msg))
	}
	if mail.Path.Src != c.src || mail.Path.Dst != c.dst {
		r.t.Errorf("packet %d: from %v to %v, Linux from %v to %v", c.n, mail.Path.Src, mail.Path.Dst, c.src, c.dst)
	}
}

// call makes the call by which the program must have caused c.
func (r *replay) call(c captured) {
	r.t.Helper()
	var err error
	d := c.msg.Data()
	switch c.msg.Kind() {
	case cmmsg.KindREQ:
		r.id = r.m.NewID(nil)
		err = r.m.Connect(r.now, r.id, connectParams(c), &r.out)
	case cmmsg.KindSIDRREQ:
		r.id = r.m.NewID(nil)
		q := cmmsg.SIDRREQ(d)
		path := Path{Path: link.Path{Src: c.src, Dst: c.dst, PKey: q.PKey()}}
		err = r.m.Lookup(r.now, r.id, &LookupParams{Service: q.ServiceID(), Path: path, Private: c.msg.Private()}, &r.out)
	case cmmsg.KindREP:
		p := cmmsg.REP(d)
		err = r.m.Accept(r.now, r.id, &AcceptParams{
			QPN: p.LocalQPN(), SRQ: p.SRQ(), FlowControl: p.FlowControl(), ResponderResources: p.ResponderResources(),
			InitiatorDepth: p.InitiatorDepth(), RNRRetry: p.RNRRetry(), Private: c.msg.Private(),
		}, &r.out)
	case cmmsg.KindSIDRREP:
		p := cmmsg.SIDRREP(d)
		err = r.m.Answer(r.now, r.id, &AnswerParams{Status: p.Status(), QPN: p.QPN(), QKey: p.QKey(),
			Private: c.msg.Private()}, &r.out)
	case cmmsg.KindRTU:
		err = r.m.Establish(r.id, nil, &r.out)
	case cmmsg.KindDREQ, cmmsg.KindDREP:
		err = r.m.Disconnect(r.now, r.id, nil, &r.out)
	default:
		r.t.Fatalf("packet %d: nothing causes %v", c.n, c.msg)
	}
	if err != nil {
		r.t.Fatalf("packet %d: %v: %v", c.n, c.msg, err)
	}
}

// connectParams are the parameters that the program must have used.
func connectParams(c captured) *ConnectParams {
	q := cmmsg.REQ(c.msg.Data())
	p := q.Primary()
	return &ConnectParams{
		Service: q.ServiceID(), Transport: q.Transport(), QPN: q.LocalQPN(), SRQ: q.SRQ(), FlowControl: q.FlowControl(),
		ResponderResources: q.ResponderResources(), InitiatorDepth: q.InitiatorDepth(), RetryCount: q.RetryCount(),
		RNRRetry: q.RNRRetry(),
		Path: Path{
			Path: link.Path{Src: c.src, Dst: c.dst, TClass: p.TClass(), HopLimit: p.HopLimit(), FlowLabel: p.FlowLabel()},
			MTU:  q.MTU(), LifeTime: 18, // of that kernel
		},
		Private: c.msg.Private(),
	}
}

// checkEmpty checks that the machine is empty.
func checkEmpty(t testing.TB, m *Machine) {
	t.Helper()
	if m.live != 0 || len(m.ids) != 0 || len(m.peers) != 0 || len(m.qps) != 0 || len(m.sidr) != 0 ||
		len(m.timers) != 0 || m.kept != 0 {
		t.Errorf("left: %d live, %d IDs, %d peers, %d QPs, %d look-ups, %d timers, %d answers remembered",
			m.live, len(m.ids), len(m.peers), len(m.qps), len(m.sidr), len(m.timers), m.kept)
	}
	if len(m.sources) != m.known || m.known > maxKnown {
		t.Errorf("left: %d sources, %d of them known", len(m.sources), m.known)
	}
	for i := range m.guard.known {
		if n := m.guard.known[i].Load(); n != 0 {
			t.Errorf("left: count %d at entry %d of the guard", n, i)
			break
		}
	}
	if m.timewait != (idList{}) {
		t.Errorf("left in timewait: %+v", m.timewait)
	}
	for _, list := range m.listeners {
		for _, l := range list {
			if l.half != [2]idList{} || l.undecided != [2]int{} {
				t.Errorf("left at a listener: %+v, %v", l.half, l.undecided)
			}
		}
	}
}

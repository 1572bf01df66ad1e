package rdmacm

import (
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// handle does what an event of the machine asks for and tells the program. It runs in pump.
func (d *device) handle(ev *cm.Event) {
	if ev.Type == cm.EventREQ || ev.Type == cm.EventSIDRREQ {
		d.request(ev)
		return
	}
	d.mu.Lock() // the machine forgets the owner of an ID that is destroyed
	id, ok := ev.ID.Context.(*ID)
	d.mu.Unlock()
	if !ok {
		return
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == stDestroying || id.state == stRemoved || id.broken && ev.Type != cm.EventTimewaitExit {
		return
	}
	switch ev.Type {
	case cm.EventREP:
		id.onReply(ev.Msg)
	case cm.EventEstablished:
		id.push(&Event{Type: EventEstablished, Conn: id.connParam(nil)})
	case cm.EventREJ:
		r := cmmsg.REJ(ev.Msg.Data())
		id.push(&Event{Type: EventRejected, Status: int(r.Reason()), Conn: ConnParam{PrivateData: r.Private()}})
	case cm.EventREQTimeout, cm.EventREPTimeout, cm.EventSIDRTimeout:
		id.push(&Event{Type: EventUnreachable, Status: -int(syscall.ETIMEDOUT)})
	case cm.EventDREQ:
		id.peerLeft()
		id.disconnected(0)
	case cm.EventDREP:
		id.disconnected(0)
	case cm.EventDREQTimeout:
		id.disconnected(-int(syscall.ETIMEDOUT))
	case cm.EventTimewaitExit:
		id.push(&Event{Type: EventTimewaitExit})
	case cm.EventSIDRREP:
		id.onAnswer(ev.Msg)
	case cm.EventLAP:
		d.answerLAP(ev.ID)
	}
}

// disconnected tells the end of the connection, once.
func (id *ID) disconnected(status int) {
	if !id.ended {
		id.ended = true
		id.state = stDisconnect
		id.push(&Event{Type: EventDisconnected, Status: status})
	}
}

// onReply takes the peer's yes: the QP goes to RTS and the peer is told so.
func (id *ID) onReply(msg cmmsg.Msg) {
	r := cmmsg.REP(msg.Data())
	id.learn()
	id.peerECE = ECE{msg.ECE().Vendor, msg.ECE().Options}
	ev := &Event{Type: EventConnectResponse, Conn: id.connParam(r.Private()), ECE: id.peerECE}
	ev.Conn.FlowControl, ev.Conn.RNRRetryCount, ev.Conn.SRQ = r.FlowControl(), r.RNRRetry(), r.SRQ()
	if id.qp == nil {
		id.push(ev)
		return
	}
	err := id.connectQP()
	if err == nil {
		err = id.dev.do(func(m *cm.Machine, _ int64, out *cm.Batch) error { return m.Establish(id.cmid, nil, out) })
	}
	if err != nil {
		id.failQP()
		_ = id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
			return m.Reject(now, id.cmid, cmmsg.RejConsumer, nil, nil, out)
		})
		id.broken = true
		id.push(&Event{Type: EventConnectError, Status: -int(errnoOf(err)), cause: err})
		return
	}
	ev.Type = EventEstablished
	id.push(ev)
}

// learn takes over what the messages said about the QPs.
func (id *ID) learn() {
	_ = id.dev.do(func(*cm.Machine, int64, *cm.Batch) error {
		id.attrs, id.cmPath = id.cmid.Attrs(), *id.cmid.Path()
		return nil
	})
	id.respRes = least(id.attrs.MaxDestRdAtomic, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(id.attrs.MaxRdAtomic, id.dev.attr.MaxQPInitRdAtom)
}

// connParam is what the peer told, seen from this side.
func (id *ID) connParam(private []byte) ConnParam {
	return ConnParam{
		PrivateData: private, ResponderResources: id.attrs.MaxDestRdAtomic, InitiatorDepth: id.attrs.MaxRdAtomic, QPNum: id.attrs.DestQPN,
	}
}

// onAnswer takes the answer to a look-up.
func (id *ID) onAnswer(msg cmmsg.Msg) {
	r := cmmsg.SIDRREP(msg.Data())
	id.peerECE = ECE{msg.ECE().Vendor, msg.ECE().Options}
	switch {
	case r.Status() != cmmsg.SIDRSuccess:
		id.push(&Event{Type: EventUnreachable, Status: int(r.Status()), UD: UDParam{PrivateData: r.Private()}})
	case r.QKey() == 0 || id.qp != nil && r.QKey() != UDPQKey:
		id.push(&Event{Type: EventAddrError, Status: -int(syscall.EINVAL)})
	default:
		id.push(&Event{Type: EventEstablished, ECE: id.peerECE, UD: UDParam{
			PrivateData: r.Private(), AHAttr: id.ahAttr(id.path.DGID), QPNum: r.QPN(), QKey: r.QKey(),
		}})
	}
}

// ahAttr is the way to a GID from the ID's address.
func (id *ID) ahAttr(to verbs.GID) verbs.AHAttr {
	return verbs.AHAttr{IsGlobal: true, PortNum: portNum, GRH: verbs.GlobalRoute{
		DGID: to, SGIDIndex: id.sgid, HopLimit: defaultHopLimit, TrafficClass: id.tos, FlowLabel: id.path.FlowLabel,
	}}
}

// request makes a new ID of a request and tells the listener's program.
func (d *device) request(ev *cm.Event) {
	l := ev.Listener.Context.(*ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	refuse := func() {
		_ = d.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
			m.Destroy(now, ev.ID, out)
			return nil
		})
	}
	if l.state != stListen {
		refuse()
		return
	}
	ch := l.ch
	if l.sync {
		ch = nil
	}
	id := l.host.newID(ch, l.ps, l.Context)
	if id == nil {
		refuse()
		return
	}
	id.mu.Lock()
	if id.state == stDestroying { // the channel was closed just now
		id.mu.Unlock()
		refuse()
		return
	}
	id.qpType, id.cmid, id.state, id.tos = l.qpType, ev.ID, stConnect, l.tos
	id.ackTimeout, id.ackTimeoutSet = l.ackTimeout, l.ackTimeoutSet
	l.host.mu.Lock()
	id.bindDevice(d, 0)
	l.host.mu.Unlock()
	id.learn()
	_ = d.do(func(*cm.Machine, int64, *cm.Batch) error { ev.ID.Context = id; return nil })
	out := &Event{Type: EventConnectRequest, ID: id, ListenID: l}
	id.peerECE = ECE{ev.Msg.ECE().Vendor, ev.Msg.ECE().Options}
	out.ECE = id.peerECE
	private := id.readAddrs(ev.Msg)
	id.zone = l.zone
	if id.zone == "" && needsZone(id.local.Addr()) {
		id.zone = interfaceOf(id.local.Addr())
	}
	id.sgid = d.gidIndex(id.cmPath.Src)
	if ev.Type == cm.EventREQ {
		r := cmmsg.REQ(ev.Msg.Data())
		out.Conn = id.connParam(private)
		out.Conn.FlowControl, out.Conn.SRQ = r.FlowControl(), r.SRQ()
		out.Conn.RetryCount, out.Conn.RNRRetryCount = r.RetryCount(), r.RNRRetry()
	} else {
		out.UD = UDParam{PrivateData: private}
		out.Conn = ConnParam{PrivateData: private}
	}
	id.mu.Unlock()
	if id.sgid < 0 || !l.push(out) { // the address or the channel has gone meanwhile
		id.destroyAll()
	}
}

// readAddrs takes the addresses from a request, and returns the program's part of its private data.
func (id *ID) readAddrs(msg cmmsg.Msg) (private []byte) {
	private = msg.Private()
	_, port, _ := id.cmid.Service().Port()
	h := cmmsg.IPHeader(private[:cmmsg.IPHeaderLen])
	p := &id.cmPath
	if h.Version() == 0 && h.Dst().IsValid() {
		id.local, id.remote = netip.AddrPortFrom(h.Dst(), port), netip.AddrPortFrom(h.Src(), h.SrcPort())
		private = private[cmmsg.IPHeaderLen:]
	} else { // a request between GIDs (AF_IB): there are no ports but that of the service
		id.local, id.remote, id.afIB = netip.AddrPortFrom(p.Src, port), netip.AddrPortFrom(p.Dst, 0), true
	}
	id.path = PathRec{
		SGID: verbs.GIDFromAddr(p.Src), DGID: verbs.GIDFromAddr(p.Dst), FlowLabel: p.FlowLabel, HopLimit: p.HopLimit, TrafficClass: p.TClass,
		Reversible: true, NumbPath: 1, PKey: p.PKey, SL: p.SL, MTU: verbs.MTU(p.MTU), Rate: p.Rate, PacketLifeTime: p.LifeTime,
	}
	id.haveRoute = true
	return private
}

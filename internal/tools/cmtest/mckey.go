package cmtest

import (
	"context"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// mckey joins a multicast group and sends to it or receives from it.
type mckey struct {
	test
	group    string
	sender   bool
	sendOnly bool
	addr     netip.AddrPort
}

func runMckey(env *tool.Env, args []string) int {
	m := &mckey{}
	if status, ok := m.parse(env, args); !ok {
		return status
	}
	return m.run(m.play)
}

func (m *mckey) parse(env *tool.Env, args []string) (status int, ok bool) {
	m.test = test{name: "mckey", typ: verbs.QPTypeUD}
	f := m.flags(env)
	f.StringVarP(&m.group, "multicast", "m", "", "multicast address")
	unmapped := f.StringP("unmapped", "M", "", "multicast address as a GID, instead of -m; needs -b")
	f.BoolVarP(&m.sender, "sender", "s", false, "send")
	f.BoolVarP(&m.sendOnly, "send-only", "o", false, "join as a send-only full member")
	space := f.StringP("port-space", "p", "0x111", "port space: 0x111 for UDP, 0x2 for IPOIB")
	if status, ok := f.Parse(args); !ok {
		return status, false
	}
	var err error
	if m.hints.PortSpace, err = number(*space); err != nil {
		return f.Misused(err.Error()), false
	}
	if *unmapped != "" {
		if m.bind == "" {
			return f.Misused("unmapped multicast address requires binding to source address"), false
		}
		m.group = *unmapped
	}
	if m.group == "" {
		return f.Misused("a multicast address is needed, -m or -M"), false
	}
	return m.check(f)
}

func (m *mckey) handle(ev *rdmacm.Event) (err error) {
	n, _ := ev.ID.Context.(*node)
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		return m.join(n)
	case rdmacm.EventMulticastJoin:
		g := &ev.UD.AHAttr
		m.sayf("mckey: joined dgid: %v mlid 0x%x sl %d", g.GRH.DGID, g.DLID, g.SL)
		n.qpn, n.qkey = ev.UD.QPNum, ev.UD.QKey
		if n.ah, err = n.pd.CreateAH(g); err != nil {
			return err
		}
		n.connected = true
		m.left--
	case rdmacm.EventAddrError, rdmacm.EventRouteError, rdmacm.EventMulticastError:
		m.left--
		return failed(ev)
	}
	return nil
}

func (m *mckey) join(n *node) error {
	if err := n.setUp(); err != nil {
		return err
	}
	if !m.sender {
		if err := n.postRecvs(); err != nil {
			return err
		}
	}
	attr := &rdmacm.JoinMCAttr{CompMask: rdmacm.JoinMCAttrAddress | rdmacm.JoinMCAttrJoinFlags, Addr: m.addr}
	if m.sendOnly {
		attr.JoinFlags = rdmacm.JoinSendOnlyFullMember
	}
	return n.id.JoinMulticastEx(m.ctx, attr, n)
}

// joinPause gives the network time to learn of the members.
const joinPause = 3 * time.Second

func (m *mckey) play() error {
	if m.sender {
		m.sayf("mckey: starting client")
	} else {
		m.sayf("mckey: starting server")
	}
	if err := m.start(); err != nil {
		return err
	}
	err := m.events(&m.left, m.handle)
	if err == nil {
		select {
		case <-time.After(joinPause):
			err = m.transfer()
		case <-m.ctx.Done():
			err = context.Cause(m.ctx)
		}
	}
	for _, n := range m.nodes {
		if left := n.id.LeaveMulticast(m.addr); err == nil {
			err = left
		}
	}
	return err
}

// start resolves the addresses and joins the group.
func (m *mckey) start() error {
	dst, err := rdmacm.GetAddrInfo(m.ctx, m.group, "", &rdmacm.AddrInfo{PortSpace: rdmacm.PSUDP})
	if err != nil {
		return err
	}
	m.addr = dst.DstAddr
	var src netip.AddrPort
	if m.bind != "" {
		from, err := rdmacm.GetAddrInfo(m.ctx, m.bind, "",
			&rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSUDP})
		if err != nil {
			return err
		}
		src = from.SrcAddr
	}
	m.sayf("mckey: joining")
	return m.resolveAll(src, m.addr)
}

func (m *mckey) transfer() error {
	if m.count == 0 {
		return nil
	}
	if m.sender {
		m.sayf("initiating data transfers")
		// Signaled, so that the program does not end before the messages are sent.
		if err := m.each(func(n *node) error { return n.postSends(verbs.SendSignaled) }); err != nil {
			return err
		}
		if err := m.each(func(n *node) error { return n.poll(n.sendCQ, nil) }); err != nil {
			return err
		}
	} else {
		m.sayf("receiving data transfers")
		if err := m.each(func(n *node) error { return n.poll(n.recvCQ, nil) }); err != nil {
			return err
		}
	}
	m.sayf("data transfers complete")
	return nil
}

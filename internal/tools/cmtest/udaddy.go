package cmtest

import (
	"fmt"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// udaddy looks up the server's QPs and exchanges messages with them.
type udaddy struct{ test }

func runUdaddy(env *tool.Env, args []string) int {
	u := &udaddy{}
	if status, ok := u.parse(env, args); !ok {
		return status
	}
	return u.start()
}

func (u *udaddy) start() int {
	if u.server != "" {
		return u.run(u.client)
	}
	return u.run(u.serve)
}

func (u *udaddy) parse(env *tool.Env, args []string) (status int, ok bool) {
	u.test = test{name: "udaddy", typ: verbs.QPTypeUD, port: "7174", hints: rdmacm.AddrInfo{PortSpace: rdmacm.PSUDP},
		silence: maxSilence}
	f := u.flags(env)
	format, _ := u.flagsOfPeer(f)
	space := f.StringP("port-space", "P", "udp", "port space: udp or ipoib")
	num := f.StringP("port-space-number", "p", "0x111", "port space: 0x111 for UDP, 0x2 for IPOIB; use -P")
	if status, ok := f.Parse(args); !ok {
		return status, false
	}
	u.format(*format)
	var err error
	if u.hints.PortSpace, err = number(*num); err != nil {
		return f.Misused(err.Error()), false
	}
	switch s := strings.ToLower(*space); {
	case strings.HasPrefix(s, "ipoib"):
		u.hints.PortSpace = rdmacm.PSIPoIB
	case !strings.HasPrefix(s, "udp"):
		fmt.Fprintln(env.Stderr, "Warning: unknown port space format")
	}
	return u.check(f)
}

func (u *udaddy) handle(ev *rdmacm.Event) (err error) {
	n, _ := ev.ID.Context.(*node)
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		if u.tos >= 0 {
			if err := ev.ID.SetTOS(uint8(u.tos)); err != nil {
				return err
			}
		}
		return ev.ID.ResolveRoute(u.ctx, resolveTimeout)
	case rdmacm.EventRouteResolved:
		if err := n.setUp(); err != nil {
			return err
		}
		if err := n.postRecvs(); err != nil {
			return err
		}
		return ev.ID.Connect(u.ctx, &rdmacm.ConnParam{PrivateData: u.info.Connect})
	case rdmacm.EventConnectRequest:
		return u.request(ev.ID, func(n *node) error {
			if err := n.postRecvs(); err != nil {
				return err
			}
			if err := n.id.Accept(u.ctx, &rdmacm.ConnParam{QPNum: n.id.QP().QPN()}); err != nil {
				return err
			}
			n.connected = true
			u.left--
			return nil
		})
	case rdmacm.EventEstablished:
		n.qpn, n.qkey = ev.UD.QPNum, ev.UD.QKey
		if n.ah, err = n.pd.CreateAH(&ev.UD.AHAttr); err != nil {
			return err
		}
		n.connected = true
		u.left--
	case rdmacm.EventAddrError, rdmacm.EventRouteError, rdmacm.EventConnectError, rdmacm.EventUnreachable,
		rdmacm.EventRejected:
		u.left--
		return failed(ev)
	}
	return nil
}

func (u *udaddy) serve() error {
	l, err := u.listen()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := u.events(&u.left, u.handle); err != nil || u.count == 0 {
		return err
	}
	u.sayf("receiving data transfers")
	if err := u.each(func(n *node) error { return n.poll(n.recvCQ, n.learnPeer) }); err != nil {
		return err
	}
	u.sayf("sending replies")
	if err := u.each(func(n *node) error { return n.postSends(verbs.SendSignaled) }); err != nil {
		return err
	}
	if err := u.each(func(n *node) error { return n.poll(n.sendCQ, nil) }); err != nil {
		return err
	}
	u.sayf("data transfers complete")
	return nil
}

// learnPeer takes the peer's address from the IP header of its first message, and the QP number from the
// immediate data.
func (n *node) learnPeer(wc *verbs.WC) (err error) {
	n.ah, err = n.pd.CreateAHFromWC(n.id.PortNum(), wc, n.mr.Bytes()[:grhLen])
	n.qpn, n.qkey = wc.ImmData, rdmacm.UDPQKey
	return err
}

func (u *udaddy) client() error {
	if err := u.dial(); err != nil {
		return err
	}
	if err := u.events(&u.left, u.handle); err != nil || u.count == 0 {
		return err
	}
	u.sayf("initiating data transfers")
	if err := u.each(func(n *node) error { return n.postSends(0) }); err != nil {
		return err
	}
	u.sayf("receiving data transfers")
	if err := u.each(func(n *node) error { return n.poll(n.recvCQ, nil) }); err != nil {
		return err
	}
	u.sayf("data transfers complete")
	return nil
}

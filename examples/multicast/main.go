// Multicast sends messages to a multicast group or receives them, like the multicast program of the RDMA manual.
//
//	multicast -b 192.0.2.1 -m 239.1.2.3       # receives
//	multicast -b 192.0.2.2 -m 239.1.2.3 -s    # sends to all receivers
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"os/signal"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	messages = 10
	grhLen   = 40 // bytes of headers before the data of a received datagram
	size     = 100
)

func main() {
	bind := flag.String("b", "", "local `address`")
	group := flag.String("m", "239.1.2.3", "`address` of the group")
	sender := flag.Bool("s", false, "send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m := &member{out: os.Stdout, ready: func() {}}
	if err := m.run(ctx, *bind, *group, *sender); err != nil {
		log.Fatal(err)
	}
}

// member is one member of the group.
type member struct {
	out   io.Writer
	ready func() // called after the group was joined
	id    *rdmacm.ID
	mr    *verbs.MR
}

func (m *member) run(ctx context.Context, bind, group string, sender bool) (err error) {
	local, err := netip.ParseAddr(bind)
	if err != nil {
		return fmt.Errorf("-b %q: must be an IP address of this host that a device has", bind)
	}
	to, err := netip.ParseAddr(group)
	if err != nil {
		return fmt.Errorf("-m %q: must be the IP address of a multicast group", group)
	}
	// An ID without an event channel is synchronous: each call returns when its operation has ended.
	if m.id, err = rdmacm.CreateID(nil, rdmacm.PSUDP, nil); err != nil {
		return err
	}
	defer m.id.Close()
	if err := m.id.BindAddr(netip.AddrPortFrom(local, 0)); err != nil {
		return err
	}
	// Before the QP, so that it is closed after it: the receives of the QP name this memory.
	if m.mr, err = m.id.RegMsgs(make([]byte, messages*(grhLen+size))); err != nil {
		return err
	}
	defer m.mr.Close()
	sizes := verbs.QPCap{MaxSendWR: messages, MaxRecvWR: messages, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: size}
	if err := m.id.CreateQP(nil, &verbs.QPInitAttr{Cap: sizes}); err != nil {
		return err
	}
	defer m.id.DestroyQP()
	for i := range messages {
		if err := m.id.PostRecv(uint64(i), m.buffer(i), m.mr); err != nil {
			return err
		}
	}
	if err := m.id.JoinMulticast(ctx, netip.AddrPortFrom(to, 0), nil); err != nil {
		return err
	}
	defer m.id.LeaveMulticast(netip.AddrPortFrom(to, 0))
	m.ready()
	if sender {
		return m.send(ctx)
	}
	return m.receive(ctx)
}

// buffer returns the receive buffer of message i.
func (m *member) buffer(i int) []byte { return m.mr.Bytes()[i*(grhLen+size):][:grhLen+size] }

func (m *member) send(ctx context.Context) error {
	group := m.id.Event().UD // the group's address and Q_Key
	ah, err := m.id.PD().CreateAH(&group.AHAttr)
	if err != nil {
		return err
	}
	defer ah.Close()
	for i := range messages {
		text := fmt.Appendf(nil, "message %d", i)
		if err := m.id.PostUDSend(uint64(i), text, nil, verbs.SendInline|verbs.SendSignaled, ah, group.QPNum); err != nil {
			return err
		}
		wc, err := m.id.GetSendComp(ctx)
		if err = errors.Join(err, wc.Err()); err != nil {
			return err
		}
	}
	fmt.Fprintf(m.out, "sent %d messages\n", messages)
	return nil
}

func (m *member) receive(ctx context.Context) error {
	for range messages {
		wc, err := m.id.GetRecvComp(ctx)
		if err = errors.Join(err, wc.Err()); err != nil {
			return err
		}
		fmt.Fprintf(m.out, "%s, from QP %#x\n", m.buffer(int(wc.WRID))[grhLen:wc.ByteLen], wc.SrcQP)
	}
	return nil
}

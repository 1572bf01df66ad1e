package iwarp_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// bindsTo reports whether another ID can have a port of the loopback interface.
func bindsTo(t *testing.T, h *rdmacm.Host, port uint16) bool {
	t.Helper()
	id, err := h.CreateID(nil, rdmacm.PSTCP, nil)
	must(t, err)
	err = id.BindAddr(netip.AddrPortFrom(loopback, port))
	must(t, id.Close())
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
	return err == nil
}

// A client whose program has not read its port has the one that TCP has chosen, from the connection on, until it is
// closed. A port that the program has read or bound stays.
func TestPortOfAClient(t *testing.T) {
	h := newHost(t)
	l, lch := listen(t, h)
	for name, fixed := range map[string]bool{"unread": false, "read": true} {
		t.Run(name, func(t *testing.T) {
			c, ch := resolved(t, h, l.LocalAddr())
			var read uint16
			if fixed {
				read = c.SrcPort()
			}
			must(t, c.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))
			must(t, c.Connect(t.Context(), nil))
			ev := event(t, lch, rdmacm.EventConnectRequest)
			s := equip(t, ev.ID, lch)
			must(t, ev.Ack())
			if got := c.SrcPort(); got != read {
				t.Errorf("port %d before the connection is made, want %d", got, read)
			}
			must(t, s.Accept(t.Context(), nil))
			must(t, event(t, lch, rdmacm.EventEstablished).Ack())
			must(t, event(t, ch, rdmacm.EventEstablished).Ack())
			port := c.SrcPort()
			if port == 0 || port != s.DstPort() || fixed && port != read {
				t.Errorf("the client is at port %d, its peer sees %d, the program has read %d", port, s.DstPort(), read)
			}
			if bindsTo(t, h, port) {
				t.Error("another ID gets the port of the connection")
			}
			must(t, c.Disconnect(t.Context()))
			must(t, event(t, ch, rdmacm.EventDisconnected).Ack())
			must(t, event(t, lch, rdmacm.EventDisconnected).Ack())
			must(t, c.DestroyQP())
			must(t, c.Close())
			if !bindsTo(t, h, port) {
				t.Error("the port is in use when the client is closed")
			}
		})
	}
}

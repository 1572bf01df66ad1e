package soft_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestIPv6: a device with the only IPv6 loopback address exchanges messages with itself.
func TestIPv6(t *testing.T) {
	one := netip.IPv6Loopback()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(one, 0)))
	if err != nil {
		t.Skip("this system has no IPv6:", err)
	}
	port := c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	c.Close()
	dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{one}},
		softlink.Links{Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
			return udp.Open(udp.Config{Addrs: addrs, Ports: ports, Port: port})
		}})))(t)
	e := newEnd(t, dev)
	qa, qb := connect(e, e, verbs.QPTypeRC, nil)
	e.fill(2)
	must(t, qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{e.mr.SGE(500000, 100000)}}))
	must(t, qa.PostSend(send(e, 100000)))
	e.good(2)
	if !bytes.Equal(e.buf[:100000], e.buf[500000:600000]) {
		t.Error("RC: the bytes differ")
	}
	ua, ub, ah := udPair(t, e, e)
	must(t, ub.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{e.mr.SGE(500000, 1000)}}))
	wr := send(e, 900)
	wr.WRID, wr.AH, wr.RemoteQPN, wr.RemoteQKey = 2, ah, ub.QPN(), verbs.DefaultQKey
	must(t, ua.PostSend(wr))
	for _, wc := range e.good(2) {
		if wc.WRID != 1 {
			continue
		}
		attr := get(e.ctx.InitAHFromWC(1, &wc, e.buf[500000:500040]))(t)
		if attr.GRH.DGID.Addr() != one || attr.GRH.SGIDIndex != 1 || !bytes.Equal(e.buf[:900], e.buf[500040:500940]) {
			t.Errorf("UD: %+v, address %+v", wc, attr)
		}
	}
}

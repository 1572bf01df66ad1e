package rsocket_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/verbs"
)

// rawPackets is a datagram peer on host a without an rsocket: a UDP socket, and a UD QP with one receive buffer for
// each message.
type rawPackets struct {
	*rdmacm.ID
	udp *net.UDPConn
	mr  *verbs.MR
}

const rawSlot = 40 + rs.DatagramMax

func (p *places) rawPackets() *rawPackets {
	p.Helper()
	r := &rawPackets{ID: must(p.A.Host.CreateID(nil, rdmacm.PSUDP, nil))(p)}
	p.OK(r.BindAddr(netip.AddrPortFrom(p.A.Addr, 0)))
	p.OK(r.CreateQP(nil, &verbs.QPInitAttr{Cap: caps}))
	r.mr = must(r.RegMsgs(make([]byte, 4*rawSlot)))(p)
	for i := range 4 {
		p.OK(r.PostRecv(uint64(i), r.mr.Bytes()[i*rawSlot:(i+1)*rawSlot], r.mr))
	}
	r.udp = must(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.A.Addr, 0))))(p)
	p.OK(r.udp.SetDeadline(time.Now().Add(20 * time.Second)))
	return r
}

// fromUDP is the next message of the UDP socket.
func (r *rawPackets) fromUDP(p *places) (op rs.Op, qpn uint32, payload []byte, from netip.AddrPort) {
	p.Helper()
	buf := make([]byte, 4096)
	n, from, err := r.udp.ReadFromUDPAddrPort(buf)
	p.OK(err)
	op, qpn, payload, ok := rs.ParseUDPHeader(buf[:n], true)
	if !ok {
		p.Fatalf("%x has no header", buf[:n])
	}
	return op, qpn, payload, netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// toUDP sends a message from UDP socket to UDP socket.
func (r *rawPackets) toUDP(p *places, to net.Addr, op rs.Op, payload string) {
	p.Helper()
	msg := append(rs.AppendUDPHeader(nil, op, r.QP().QPN(), p.A.Addr), payload...)
	must(r.udp.WriteTo(msg, to))(p)
}

// fromQP is the next message of the QP.
func (r *rawPackets) fromQP(p *places) []byte {
	p.Helper()
	msg := r.fromQPWithin(p, 20*time.Second)
	if msg == nil {
		p.Fatal("no message has come to the QP")
	}
	return msg
}

// fromQPWithin is the next message of the QP; nil if none comes in a time.
func (r *rawPackets) fromQPWithin(p *places, d time.Duration) []byte {
	p.Helper()
	ctx, cancel := context.WithTimeout(bg, d)
	defer cancel()
	wc, err := r.GetRecvComp(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	p.OK(err)
	p.OK(wc.Err())
	return r.mr.Bytes()[int(wc.WRID)*rawSlot+40 : int(wc.WRID)*rawSlot+int(wc.ByteLen)]
}

func (r *rawPackets) close(p *places) {
	p.Helper()
	p.OK(r.udp.Close())
	p.OK(r.DestroyQP())
	p.OK(r.mr.Close())
	p.OK(r.Close())
}

// The first message is sent by UDP and contains the sender's QP. After the answer, messages go from QP to QP with a
// header.
func TestW_DS_01_02_06_08_FirstMessageByUDP(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	r := p.rawPackets()
	defer r.close(p)
	b := must((&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", p.B.At(0)))(p)
	defer b.Close()
	must(b.WriteTo([]byte("one"), r.udp.LocalAddr()))(p)
	op, qpn, payload, from := r.fromUDP(p)
	if op != rs.OpData || qpn == 0 || string(payload) != "one" || from.String() != b.LocalAddr().String() {
		t.Errorf("%v, QP %#x, %q from %v", op, qpn, payload, from)
	}
	must(b.WriteTo([]byte("two"), r.udp.LocalAddr()))(p) // nobody has answered
	if op, again, payload, _ := r.fromUDP(p); op != rs.OpData || again != qpn || string(payload) != "two" {
		t.Errorf("%v, QP %#x, %q", op, again, payload)
	}
	r.toUDP(p, b.LocalAddr(), rs.OpCtrl, "")
	want := append(rs.AppendHeader(nil, from), "three"...)
	var got []byte
	for begin := time.Now(); got == nil && time.Since(begin) < 20*time.Second; { // the answer may not have been read yet
		must(b.WriteTo([]byte("three"), r.udp.LocalAddr()))(p)
		got = r.fromQPWithin(p, 20*time.Millisecond)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// A message by UDP is delivered, and answered with this side's QP.
func TestW_DS_07_11_DataByUDP(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	r := p.rawPackets()
	defer r.close(p)
	b := must((&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", p.B.At(0)))(p)
	defer b.Close()
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 4096)
	for _, payload := range []string{"hello", "", string(socktest.Text(rsocket.MaxDatagram4, 1)),
		string(make([]byte, 3000))} {
		r.toUDP(p, b.LocalAddr(), rs.OpData, payload)
		n, from, err := b.ReadFrom(buf)
		p.OK(err)
		if want := payload[:min(len(payload), rsocket.MaxDatagram4)]; string(buf[:n]) != want ||
			from.String() != r.udp.LocalAddr().String() {
			t.Errorf("%d bytes from %v, want %d", n, from, len(want))
		}
		if op, qpn, payload, _ := r.fromUDP(p); op != rs.OpCtrl || qpn == 0 || len(payload) > 0 {
			t.Errorf("the answer is %v, QP %#x, %q", op, qpn, payload)
		}
	}
	must(b.WriteTo([]byte("back"), r.udp.LocalAddr()))(p) // the QP is known
	if got := r.fromQP(p); !bytes.HasSuffix(got, []byte("back")) {
		t.Errorf("%q", got)
	}
}

// Data are sent by UDP while there is no path to the peer's QP.
func TestW_DS_10_NoPathByRDMA(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	r := p.rawPackets()
	defer r.close(p)
	b := must((&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", p.B.At(0)))(p)
	defer b.Close()
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 100)
	// tell sends a message of the peer that names a QP, and waits until b has received it.
	tell := func(qpn uint32) {
		t.Helper()
		msg := append(rs.AppendUDPHeader(nil, rs.OpData, qpn, p.A.Addr), "in"...)
		must(r.udp.WriteTo(msg, b.LocalAddr()))(p)
		if n, _, err := b.ReadFrom(buf); string(buf[:n]) != "in" || err != nil {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		if op, _, _, _ := r.fromUDP(p); op != rs.OpCtrl {
			t.Errorf("the answer is %v", op)
		}
	}
	byUDP := func(msg string) {
		t.Helper()
		must(b.WriteTo([]byte(msg), r.udp.LocalAddr()))(p)
		if op, _, payload, _ := r.fromUDP(p); op != rs.OpData || string(payload) != msg {
			t.Errorf("%v, %q", op, payload)
		}
	}
	byQP := func(msg string) {
		t.Helper()
		must(b.WriteTo([]byte(msg), r.udp.LocalAddr()))(p)
		if got := r.fromQP(p); !bytes.HasSuffix(got, []byte(msg)) {
			t.Errorf("%q", got)
		}
	}
	qpn := r.QP().QPN()
	byUDP("nobody has told a QP")
	restore := rsocket.LoseAddress(b)
	tell(qpn)
	byUDP("there is no way")
	restore()
	tell(qpn)
	byQP("there is one")
	restore = rsocket.LoseAddress(b)
	tell(qpn + 1)
	byUDP("none to the new QP")
	restore()
	tell(qpn)
	byQP("the QP before is known again")
}

// Messages without room are dropped without an error, and the socket still works.
func TestR_IO_18_NoRoom(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	o := rsocket.Options{RecvBuf: 4 * rs.DatagramMax}
	a := must((&rsocket.ListenConfig{Host: p.A.Host}).ListenPacket(bg, "udp", p.A.At(0)))(p)
	defer a.Close()
	b := must((&rsocket.ListenConfig{Host: p.B.Host, Options: o}).ListenPacket(bg, "udp", p.B.At(0)))(p)
	defer b.Close()
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 100)
	must(a.WriteTo([]byte("hello"), b.LocalAddr()))(p)
	must2(b.ReadFrom(buf))(p)
	must(b.WriteTo([]byte("hello"), a.LocalAddr()))(p)
	must2(a.ReadFrom(buf))(p)
	for range 100 {
		must(a.WriteTo([]byte("flood"), b.LocalAddr()))(p)
	}
	p.OK(b.SetReadDeadline(time.Now().Add(200 * time.Millisecond)))
	got := 0
	for {
		if _, _, err := b.ReadFrom(buf); err != nil {
			break
		}
		got++
	}
	if got == 0 || got == 100 {
		t.Errorf("%d messages of 100 arrived, with room for 4", got)
	}
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	must(a.WriteTo([]byte("after"), b.LocalAddr()))(p)
	if n, _, err := b.ReadFrom(buf); string(buf[:n]) != "after" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func must2[A, B any](a A, b B, err error) func(p *places) {
	return func(p *places) {
		p.Helper()
		p.OK(err)
	}
}

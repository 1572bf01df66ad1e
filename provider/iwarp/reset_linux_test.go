package iwarp_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A QP that goes to RESET within a message gives the place of the message's receive back to the shared queue.
func TestResetWithinAMessageOfASharedReceive(t *testing.T) {
	t.Setenv("VERBENA_IWARP_P2P", "0")
	tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback.AsSlice()})
	must(t, err)
	defer tcp.Close()
	id, ch := resolved(t, newHost(t), tcp.Addr().(*net.TCPAddr).AddrPort())
	must(t, id.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}))
	c := equip(t, id, ch)
	t.Cleanup(func() {
		must(t, c.DestroyQP())
		must(t, c.DestroySRQ())
	})
	post := func() error { return id.SRQ().PostRecv(verbs.RecvWR{SGList: c.sge(0, 64)}) }
	must(t, post())
	must(t, id.SRQ().Modify(&verbs.SRQAttr{SRQLimit: 1}, verbs.SRQAttrLimit))
	must(t, id.Connect(t.Context(), nil))
	peer, err := tcp.AcceptTCP()
	must(t, err)
	defer peer.Close()
	must(t, peer.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadFull(peer, make([]byte, 24))
	must(t, err)
	_, err = peer.Write(append(frameOf("MPA ID Rep Frame", 0), fpdu(untagged(1, opSend, 0, 1, 0, 7))...))
	must(t, err)
	must(t, event(t, ch, rdmacm.EventEstablished).Ack())
	asyncEvent(t, id.Verbs(), verbs.EventSRQLimitReached)
	if err := post(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a receive beside the one that a message has taken: %v", err)
	}
	must(t, c.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	if err := post(); err != nil {
		t.Errorf("a receive after RESET: %v", err)
	}
}

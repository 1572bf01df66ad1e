package iwarp_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The peers here are bare TCP sockets: what they send is written byte by byte in the test, and what they receive is
// read so.

// frameOf is a start-up frame of revision 2 with depths, without CRCs and peer-to-peer mode.
func frameOf(key string, flags byte) []byte {
	return append([]byte(key), flags|0x10, 2, 0, 4, 0, 1, 0, 1)
}

// rawServer connects an ID to a bare socket, whose reply is followed by more.
func rawServer(t *testing.T, more ...byte) (client *end, peer *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback.AsSlice()})
	must(t, err)
	defer l.Close()
	id, ch := resolved(t, newHost(t), l.Addr().(*net.TCPAddr).AddrPort())
	client = equip(t, id, ch)
	client.recv(1, 0, 10)
	must(t, id.Connect(t.Context(), nil))
	peer, err = l.AcceptTCP()
	must(t, err)
	t.Cleanup(func() { _ = peer.Close() })
	must(t, peer.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadFull(peer, make([]byte, 24))
	must(t, err)
	_, err = peer.Write(append(frameOf("MPA ID Rep Frame", 0), more...))
	must(t, err)
	must(t, event(t, ch, rdmacm.EventEstablished).Ack())
	return client, peer
}

// fpdu is a segment in its frame, with a CRC that nobody looks at.
func fpdu(seg []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(seg)))
	b = append(b, seg...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return append(b, 0, 0, 0, 0)
}

// untagged is a segment of an untagged message.
func untagged(ddp, rdmap byte, queue, msn, mo uint32, payload ...byte) []byte {
	b := []byte{ddp, rdmap, 0, 0, 0, 0}
	for _, v := range []uint32{queue, msn, mo} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, payload...)
}

const (
	lastTagged, lastUntagged = 0xc1, 0x41
	opWrite, opSend          = 0x40, 0x43
)

// readSegment reads the next segment that the other side has sent.
func readSegment(t *testing.T, c net.Conn) []byte {
	t.Helper()
	var n [2]byte
	_, err := io.ReadFull(c, n[:])
	must(t, err)
	size := int(binary.BigEndian.Uint16(n[:]))
	b := make([]byte, (size+2+3)&^3-2+4)
	_, err = io.ReadFull(c, b)
	must(t, err)
	return b[:size]
}

// A client that has sent one message sends nudges, although the peer has sent a message of its own: a kernel with siw
// that accepts a connection may not have seen the client's.
func TestNudgeAfterAMessageOfThePeer(t *testing.T) {
	t.Setenv("VERBENA_IWARP_P2P", "0")
	c, peer := rawServer(t)
	must(t, c.QP().PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: c.sge(0, 4)}))
	_, err := peer.Write(fpdu(untagged(lastUntagged, opSend, 0, 1, 0, 7)))
	must(t, err)
	if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCSuccess || wc.ByteLen != 1 {
		t.Fatalf("the peer's SEND: %+v", wc)
	}
	if s := readSegment(t, peer); s[1] != opSend {
		t.Errorf("the client sends % x first", s)
	}
	for range 3 {
		if s := readSegment(t, peer); len(s) != 14 || s[0] != lastTagged || s[1] != opWrite {
			t.Errorf("the nudge is % x", s)
		}
	}
}

// A server that sends at once, as siw does, may have its first message arrive with its reply, whole or in part.
func TestMessageBehindTheReply(t *testing.T) {
	t.Setenv("VERBENA_IWARP_P2P", "0")
	all := fpdu(untagged(lastUntagged, opSend, 0, 1, 0, 1, 2, 3))
	for _, n := range []int{1, 17, len(all)} {
		c, peer := rawServer(t, all[:n]...)
		_, err := peer.Write(all[n:])
		must(t, err)
		if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCSuccess || wc.ByteLen != 3 || c.mem[2] != 3 {
			t.Errorf("%d bytes behind the reply: %+v", n, wc)
		}
	}
}

package soft_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestX_SRQX_01_Rendezvous: a message of any length is transferred by rendezvous, while the receiver's program uses
// its send queue as well.
func TestX_SRQX_01_Rendezvous(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		m := newTagged(t, n, 16, 16)
		for i, size := range []int{100000, 0, 1, 5000} {
			m.add(1, 9, exact, 0, 100000)
			must(t, m.qa.PostRecv(m.response()))
			clear(m.b.buf[:100000])
			m.a.fill(byte(i))
			m.send(m.rndv(9, uint32(size)), 40)
			m.wantRead(1, 9, size)
			if !bytes.Equal(m.b.buf[:size], m.a.buf[:size]) {
				t.Fatalf("%d bytes: the bytes differ", size)
			}
			m.a.good(1)
			if h, rest, err := verbs.ParseTMHeader(m.a.buf[3<<18 : 3<<18+16]); err != nil ||
				h != (verbs.TMHeader{Op: verbs.TMFin, AppCtx: 16, Tag: 9}) || len(rest) != 0 {
				t.Errorf("the response: %+v, %v", h, err)
			}
		}
		// An unexpected request is passed to the program, with its data.
		m.send(m.rndv(8, 5), 40)
		m.want(unexpected(1000, 8, 72))
		rv, rest, err := verbs.ParseRVHeader(m.b.buf[1<<19+16 : 1<<19+72])
		if err != nil || rv != (verbs.RVHeader{Addr: m.a.mr.Addr(), RKey: m.a.mr.RKey(), Length: 5}) || len(rest) != 40 {
			t.Errorf("%+v, %d bytes, %v", rv, len(rest), err)
		}
		m.seen++

		// Many requests do not use up slots of the send queue.
		_, made, err := m.qb.Query(verbs.QPAttrCap)
		must(t, err)
		room := int(made.Cap.MaxSendWR)
		for i := range 5 * room {
			m.add(uint64(i), 9, exact, 0, 3000)
			must(t, m.qa.PostRecv(m.response()))
			if i%3 == 0 {
				wr := send(m.b, 8)
				wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, m.a.mr.Addr()+1<<18, m.a.mr.RKey()
				if i%2 == 0 {
					wr.Flags = 0
				}
				must(t, m.qb.PostSend(wr))
				if wr.Flags != 0 {
					m.b.good(1)
				}
			}
			m.send(m.rndv(9, 3000), 0)
			m.wantRead(uint64(i), 9, 3000)
			m.a.good(1)
		}
		wr := send(m.b, 8)
		wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, m.a.mr.Addr()+1<<18, m.a.mr.RKey()
		must(t, m.qb.PostSend(wr))
		m.b.good(1) // the last one without SendSignaled has its slot no longer
		for range room {
			must(t, m.qb.PostSend(wr))
		}
		m.b.good(room)
	})
}

// TestX_SRQX_01_RendezvousByTheProgram: a QP that cannot READ leaves the rendezvous to the program: the buffer has
// the request.
func TestX_SRQX_01_RendezvousByTheProgram(t *testing.T) {
	m := newTagged(t, &networks[0], 4, 4)
	must(t, m.qb.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	must(t, m.qa.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	ia, ib := get(m.qa.LocalInfo())(t), get(m.qb.LocalInfo())(t)
	must(t, m.qa.Connect(ib, nil))
	toRTR(t, m.qb, ia)
	m.add(1, 9, exact, 0, 100)
	m.send(m.rndv(9, 5000), 4)
	start(t, m.cq)
	if m.cq.WRID != 1 || m.cq.Status != verbs.WCTMRndvIncomplete || m.cq.Opcode != verbs.WCTMRecv ||
		m.cq.TM != info(9) || m.cq.ByteLen != 36 {
		t.Errorf("%d %v %v", m.cq.WRID, m.cq.Status, m.cq.Opcode)
	}
	m.cq.EndPoll()
	if !bytes.Equal(m.b.buf[:36], append(m.rndv(9, 5000), m.a.buf[:4]...)) {
		t.Error("the buffer does not hold the request")
	}
	if m.qb.State() != verbs.QPSRTR {
		t.Errorf("the QP is in %v", m.qb.State())
	}
	m.add(2, 9, exact, 0, 35) // too small for the request
	m.send(m.rndv(9, 5000), 4)
	m.want(unexpected(1000, 9, 36))
	m.send(m.rndv(9, 5000), 300) // longer than max_rndv_hdr_size
	m.want(unexpected(1001, 9, 332))
}

// The two completions of a rendezvous free one buffer, and no receive of the SRQ.
func TestX_SRQX_01_RendezvousFreesOneBuffer(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		m := newTagged(t, n, 16, 16)
		for range 5 {
			m.add(1, 9, exact, 0, 4000)
			must(t, m.qa.PostRecv(m.response()))
			m.send(m.rndv(9, 3000), 0)
			m.wantRead(1, 9, 3000)
			m.a.good(1)
		}
		if err := m.srq.PostRecv(recv(m.b, 2, 100)); !errors.Is(err, verbs.ENOMEM) {
			t.Errorf("a receive beyond the 16 of the full SRQ: %v", err)
		}
	})
}

package soft_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

func TestSendEachWay(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		for _, way := range []struct {
			from, to     *end
			qfrom, qdest *verbs.QP
		}{{a, b, qa, qb}, {b, a, qb, qa}} {
			way.from.fill(3)
			clear(way.to.buf)
			must(t, way.qdest.PostRecv(verbs.RecvWR{WRID: 7, SGList: []verbs.SGE{way.to.mr.SGE(0, 5000)}}))
			must(t, way.qfrom.PostSend(verbs.SendWR{
				WRID: 8, Opcode: verbs.WRSendWithImm, Flags: verbs.SendSignaled, ImmData: 0x12345678,
				SGList: []verbs.SGE{way.from.mr.SGE(100, 3000), way.from.mr.SGE(9000, 1000)},
			}))
			r, s := way.to.good(1)[0], way.from.good(1)[0]
			if r.WRID != 7 || r.Opcode != verbs.WCRecv || r.ByteLen != 4000 || r.ImmData != 0x12345678 ||
				r.WCFlags != verbs.WCWithImm || r.QPNum != way.qdest.QPN() {
				t.Errorf("receive completion %+v", r)
			}
			if s.WRID != 8 || s.Opcode != verbs.WCSend || s.QPNum != way.qfrom.QPN() {
				t.Errorf("send completion %+v", s)
			}
			want := append(append([]byte{}, way.from.buf[100:3100]...), way.from.buf[9000:10000]...)
			if !bytes.Equal(way.to.buf[:4000], want) {
				t.Error("the received bytes differ from the sent ones")
			}
		}
	})
}

func TestOneSidedOperations(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		const size = 1 << 19
		a.fill(1)
		post := func(wr verbs.SendWR) verbs.WC {
			t.Helper()
			wr.Flags |= verbs.SendSignaled
			wr.RKey = b.mr.RKey()
			wr.RemoteAddr += b.mr.Addr()
			must(t, qa.PostSend(wr))
			return a.good(1)[0]
		}
		post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, size)}, RemoteAddr: 8})
		if !bytes.Equal(b.buf[8:8+size], a.buf[:size]) {
			t.Error("WRITE: the bytes differ")
		}
		wc := post(verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{a.mr.SGE(size, size)}, RemoteAddr: 8})
		if wc.ByteLen != size || !bytes.Equal(a.buf[size:], b.buf[8:8+size]) {
			t.Errorf("READ: the bytes differ, or the length is not %d but %d", size, wc.ByteLen)
		}
		binary.NativeEndian.PutUint64(b.buf, 40)
		post(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: []verbs.SGE{a.mr.SGE(0, 8)}, CompareAdd: 2})
		if old, now := binary.NativeEndian.Uint64(a.buf), binary.NativeEndian.Uint64(b.buf); old != 40 || now != 42 {
			t.Errorf("FETCH_ADD: was %d, is %d", old, now)
		}
		post(verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, SGList: []verbs.SGE{a.mr.SGE(0, 8)}, CompareAdd: 42, Swap: 99})
		if old, now := binary.NativeEndian.Uint64(a.buf), binary.NativeEndian.Uint64(b.buf); old != 42 || now != 99 {
			t.Errorf("CMP_SWAP: was %d, is %d", old, now)
		}
	})
}

package iwarp

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// replay puts a QP in the place of one end of a connection that siw had with siw.
type replay struct {
	t     *testing.T
	s     *side
	mine  [][]byte // the FPDUs that the kernel sent at this end
	peer  [][]byte // and those of the other end, as far as they were not fed
	place map[uint32]*extent
	heap  *mr.Region // the source of SENDs and WRITEs
	ids   uint64
	reads []iwarp.Read // of the peer, not answered
}

// extent is the memory that the capture shows of an STag.
type extent struct{ lo, hi uint64 }

func (x *extent) add(to uint64, n int) { x.lo, x.hi = min(x.lo, to), max(x.hi, to+uint64(n)) }

func split(t *testing.T, b []byte, reply bool) (all [][]byte) {
	_, n, err := iwarp.ParseStart(b, reply)
	for b = b[n:]; len(b) > 0 && err == nil; {
		var f iwarp.FPDU
		if f, err = iwarp.ParseFPDU(b); err == nil {
			all = append(all, f)
			b = b[len(f):]
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func segmentOf(f []byte) iwarp.Segment { return iwarp.FPDU(f).ULPDU() }

// newReplay makes the regions that this end needs, under the keys that siw had.
func newReplay(t *testing.T, mine, peer [][]byte, p Params) *replay {
	r := &replay{t: t, mine: mine, peer: peer, place: map[uint32]*extent{}}
	see := func(stag uint32, to uint64, n int) {
		if n > 0 && r.place[stag] == nil {
			r.place[stag] = &extent{to, to}
		}
		if n > 0 {
			r.place[stag].add(to, n)
		}
	}
	ulpdu := Shortest
	for _, f := range mine {
		ulpdu = max(ulpdu, len(segmentOf(f)))
		if s := segmentOf(f); s.Opcode() == iwarp.ReadRequest {
			d := iwarp.ParseRead(s.Payload())
			see(d.SinkSTag, d.SinkTO, int(d.Size))
		}
	}
	for _, f := range peer {
		switch s := segmentOf(f); s.Opcode() {
		case iwarp.Write:
			see(s.STag(), s.TO(), len(s.Payload()))
		case iwarp.ReadRequest:
			d := iwarp.ParseRead(s.Payload())
			see(d.SrcSTag, d.SrcTO, int(d.Size))
		}
	}
	keys := make([]uint32, 0, len(r.place))
	for k := range r.place {
		keys = append(keys, k)
	}
	next := 0
	r.s = &side{t: t, table: mr.NewTable(100, func() uint32 {
		if next++; next <= len(keys) {
			return keys[next-1]
		}
		return uint32(next) << 8
	})}
	for _, k := range keys {
		x := r.place[k]
		r.s.region(make([]byte, x.hi-x.lo), x.lo, testPD, mr.LocalWrite|allowed)
	}
	r.heap = r.s.region(make([]byte, 1<<17), 0, testPD, mr.LocalWrite)
	r.s.sq, r.s.rq = transport.NewSendQueue(256, 1, 0), transport.NewRecvQueue(256, 1, false, testPD)
	r.s.open(p, ulpdu)
	for i := range uint64(100) {
		r.s.recv(1000+i, transport.SGE{Addr: 1 << 16, Length: 1 << 16, LKey: r.heap.LKey})
	}
	return r
}

// run posts what this end of the capture has sent, and feeds what the other end has sent whenever nothing else can
// happen. All bytes must be those of the kernel.
func (r *replay) run() {
	r.t.Helper()
	for i := 0; i < len(r.mine); {
		n := 1
		for !segmentOf(r.mine[i+n-1]).Last() {
			n++
		}
		want := bytes.Join(r.mine[i:i+n], nil)
		s := segmentOf(r.mine[i])
		rtr := i == 0 && s.Opcode() == iwarp.Write && len(s.Payload()) == 0
		if s.Opcode() == iwarp.ReadResponse {
			r.source(r.mine[i : i+n])
		} else if !rtr {
			r.post(r.mine[i : i+n])
		}
		got := r.s.drain()
		for len(got) == 0 && len(r.peer) > 0 {
			r.feed()
			got = r.s.drain()
		}
		if !bytes.Equal(got, want) {
			r.t.Fatalf("segment %d, %v: sent\n%x, siw has sent\n%x", i, s, got, want)
		}
		i += n
	}
	for len(r.peer) > 0 {
		r.feed()
	}
}

// feed passes one FPDU of the other end to the QP, and checks where its payload went.
func (r *replay) feed() {
	f := r.peer[0]
	r.peer = r.peer[1:]
	half := len(f) / 2
	r.s.qp.Feed(f[:half])
	r.s.qp.Feed(f[half:])
	s := segmentOf(f)
	if s.Tagged() && len(s.Payload()) > 0 {
		b, err := r.s.table.Get(s.STag()).Slice(s.TO(), uint64(len(s.Payload())))
		if err != nil || !bytes.Equal(b, s.Payload()) {
			r.t.Errorf("%v is not in its place: %v", s, err)
		}
	}
}

// source makes the memory hold what the kernel has answered to the next READ of the peer.
func (r *replay) source(segs [][]byte) {
	for _, f := range r.peer {
		if s := segmentOf(f); s.Opcode() == iwarp.ReadRequest {
			r.reads = append(r.reads, iwarp.ParseRead(s.Payload()))
			break
		}
	}
	d := r.reads[len(r.reads)-1]
	to := d.SrcTO
	for _, f := range segs {
		p := segmentOf(f).Payload()
		b, _ := r.s.table.Get(d.SrcSTag).Slice(to, uint64(len(p)))
		copy(b, p)
		to += uint64(len(p))
	}
}

// post posts the work request of a message.
func (r *replay) post(segs [][]byte) {
	s := segmentOf(segs[0])
	r.ids++
	if s.Opcode() == iwarp.ReadRequest {
		d := iwarp.ParseRead(s.Payload())
		r.s.post(r.ids, transport.OpRead, func(w *transport.SendWQE) { w.RemoteAddr, w.RKey = d.SrcTO, d.SrcSTag },
			transport.SGE{Addr: d.SinkTO, Length: d.Size, LKey: d.SinkSTag})
		return
	}
	n := 0
	for _, f := range segs {
		n += copy(r.heap.Buf[n:], segmentOf(f).Payload())
	}
	op := transport.OpSend
	if s.Opcode() == iwarp.Write {
		op = transport.OpWrite
	}
	r.s.post(r.ids, op, func(w *transport.SendWQE) {
		if op == transport.OpWrite {
			w.RemoteAddr, w.RKey = s.TO(), s.STag()
		}
	}, transport.SGE{Length: uint32(n), LKey: r.heap.LKey})
}

// TestReplayOfSIW puts a QP in the place of each kernel of each capture. It must send the kernel's bytes, place what
// the other kernel has sent, and complete everything with success.
func TestReplayOfSIW(t *testing.T) {
	for _, name := range captures.IWARPNames() {
		client, server := captures.ReadIWARP(t, name)
		q, _, _ := iwarp.ParseStart(client, false)
		a, _, _ := iwarp.ParseStart(server, true)
		for _, initiator := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/initiator=%v", name, initiator), func(t *testing.T) {
				mine, peer := split(t, client, false), split(t, server, true)
				p := Params{Initiator: initiator, CRC: q.CRC, RTR: a.RTR, IRD: int(q.IRD), ORD: int(a.IRD)}
				if !initiator {
					mine, peer = peer, mine
					p.IRD, p.ORD = int(a.IRD), int(a.ORD)
				}
				r := newReplay(t, mine, peer, p)
				r.run()
				if r.s.qp.State() != transport.RTS {
					t.Errorf("the QP is in ERR: %+v", r.s.qp.first)
				}
				sends, recvs := uint64(0), 0
				for _, e := range r.s.done {
					if e.Status != transport.Success {
						t.Errorf("completion %+v", e)
					}
					if e.Send {
						sends++
					} else {
						recvs++
					}
				}
				want := 0
				for _, f := range peer {
					if s := segmentOf(f); s.Opcode() == iwarp.Send && s.Last() {
						want++
					}
				}
				if sends != r.ids || recvs != want {
					t.Errorf("%d sends of %d and %d receives of %d have completed", sends, r.ids, recvs, want)
				}
			})
		}
	}
}

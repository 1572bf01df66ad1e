package soft_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// shapeNetworks are the links and their variants on which requests of random shapes are tested.
var shapeNetworks = []struct {
	name string
	net  *network
	env  string // set in the environment
	to   string
	bad  bool // the link loses, duplicates, reorders and damages packets
}{
	{"mem", &networks[0], "", "", false},
	{"udp", &networks[1], "", "", false},
	{"udp, captured", &networks[1], "VERBENA_PCAP", "FILE", false},
	{"udp with faults", &networks[1], "VERBENA_ECN", "1", true},
	{"shm", &networks[2], "VERBENA_SHM_DIRECT", "0", false},
	{"shm by reference", &networks[2], "VERBENA_SHM_DIRECT", "1", false},
	{"shm, captured", &networks[2], "VERBENA_PCAP", "FILE", false},
}

// onShapes runs a test with two ends on each network. Its seed is in the name of the test.
func onShapes(t *testing.T, f func(t *testing.T, a, b *end, bad bool, seed uint64)) {
	for i, v := range shapeNetworks {
		seed := uint64(i + 1)
		t.Run(fmt.Sprintf("%s, seed %d", v.name, seed), func(t *testing.T) {
			switch {
			case v.to == "FILE":
				file := filepath.Join(t.TempDir(), "x.pcapng")
				t.Setenv(v.env, file)
				t.Cleanup(func() { readCapture(t, file) })
			case v.env != "":
				t.Setenv(v.env, v.to)
			}
			t.Run("traffic", func(t *testing.T) {
				open := v.net.open(t)
				ends := newEnds(t, v.net, 2, func(c *soft.Config) {
					if v.bad {
						softlink.Set(c, softlink.Links{Open: withFaults(open, seed)})
					}
				})
				if v.net == &networks[2] {
					useRings(ends[0], ends[1])
				}
				f(t, ends[0], ends[1], v.bad, seed)
			})
		})
	}
}

// useRings sends until packets go through shared memory: datagrams that change to another way may be reordered.
func useRings(a, b *end) {
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	waitFor(a.tb, "shared memory", func() bool {
		must(a.tb, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
		a.good(1)
		return counter(a.dev, "shm_tx_packets") > 0
	})
}

// withFaults returns a function that opens the same links, with faults.
func withFaults(open opener, seed uint64) opener {
	send := fault.Faults{Loss: 0.01, Duplicate: 0.02, Reorder: 0.02, Corrupt: 0.01, Mark: 0.1}
	return func(addrs []netip.Addr, ports int) (link.Link, error) {
		l, err := open(addrs, ports)
		if err != nil {
			return nil, err
		}
		return fault.Wrap(l, fault.Config{Seed: seed, Send: send}), nil
	}
}

// lane is a QP that sends, and the place where its messages arrive.
type lane struct {
	name       string
	from, to   int // numbers of ends
	qp         *verbs.QP
	dest       uint32 // QP number in the completions of receives
	post       func(...verbs.RecvWR) error
	srqn       uint32
	sends      []verbs.SendWR
	recvs      []verbs.RecvWR
	sent, came []verbs.WC // completions that are expected, in order
}

// mixed sends requests of all kinds over several connected QPs at a time.
type mixed struct {
	*shaper
	lanes []*lane
	most  int // bytes of the requests of a QP in a round
	id    uint64
}

// TestRequestsOfAllShapes: SENDs, WRITEs, READs, atomics, ATOMIC WRITEs and FLUSHes of RC, with and without an SRQ, and
// XRC, of many lengths, cut into many SGEs of all kinds of memory, inline or not, bring all bytes and change no others.
func TestRequestsOfAllShapes(t *testing.T) {
	onShapes(t, func(t *testing.T, a, b *end, bad bool, seed uint64) {
		const most = 70000
		m := &mixed{shaper: newShaper(t, a, b, seed, most, 5*most), most: most}
		mtu := []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096}[seed%3]
		m.mtu = mtu.Bytes()
		m.connect(&verbs.ConnectOptions{MTU: mtu, Access: shapeAccess, MinRNRTimer: 1})
		for range 30 {
			m.round()
		}
	})
}

func shapeCaps(i *verbs.QPInitAttr) {
	i.Cap.MaxSendSGE, i.Cap.MaxRecvSGE, i.Cap.MaxInlineData = 6, 6, 4096
}

func (m *mixed) connect(opts *verbs.ConnectOptions) {
	a, b := m.ends[0], m.ends[1]
	qa, qb := a.qp(verbs.QPTypeRC, shapeCaps), b.qp(verbs.QPTypeRC, shapeCaps)
	join(m, qa, qb, opts)
	m.lanes = append(m.lanes, &lane{name: "RC", from: 0, to: 1, qp: qa, dest: qb.QPN(), post: qb.PostRecv},
		&lane{name: "RC back", from: 1, to: 0, qp: qb, dest: qa.QPN(), post: qa.PostRecv})

	srq := get(b.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 64, MaxSGE: 6}}))(m)
	m.Cleanup(func() { must(m, srq.Close()) })
	qa, qb = a.qp(verbs.QPTypeRC, shapeCaps), b.qp(verbs.QPTypeRC, func(i *verbs.QPInitAttr) { i.SRQ = srq })
	join(m, qa, qb, opts)
	m.lanes = append(m.lanes, &lane{name: "SRQ", from: 0, to: 1, qp: qa, dest: qb.QPN(), post: srq.PostRecv})

	domain := b.openXRCD(&verbs.XRCDInitAttr{OFlags: os.O_CREATE})
	xrq := get(b.pd.CreateSRQ(&verbs.SRQInitAttr{
		Attr: verbs.SRQAttr{MaxWR: 64, MaxSGE: 6}, Type: verbs.SRQTypeXRC, XRCD: domain, CQ: b.cq,
	}))(m)
	m.Cleanup(func() { must(m, xrq.Close()) })
	qa, qb = a.qp(verbs.QPTypeXRCSend, shapeCaps), b.xrcRecv(domain)
	join(m, qa, qb, opts)
	m.lanes = append(m.lanes, &lane{name: "XRC", from: 0, to: 1, qp: qa, dest: qb.QPN(), post: xrq.PostRecv,
		srqn: get(xrq.Num())(m)})
}

// round posts requests to some QPs and checks all that comes of them.
func (m *mixed) round() {
	m.begin()
	for _, l := range m.lanes {
		l.sends, l.recvs, l.sent, l.came = l.sends[:0], l.recvs[:0], l.sent[:0], l.came[:0]
		if m.r.IntN(2) == 0 {
			m.requests(l)
		}
	}
	late := m.r.IntN(4) == 0 // the peer is not ready
	for _, l := range m.lanes {
		if !late && len(l.recvs) > 0 {
			must(m, l.post(l.recvs...))
		}
	}
	for _, l := range m.lanes {
		if len(l.sends) > 0 {
			must(m, l.qp.PostSend(l.sends...))
		}
	}
	for _, l := range m.lanes {
		if late && len(l.recvs) > 0 {
			must(m, l.post(l.recvs...))
		}
	}
	m.complete()
	m.check()
}

// requests makes the requests of a QP, and the receives for them.
func (m *mixed) requests(l *lane) {
	left := m.most
	for k := 1 + m.r.IntN(6); k > 0; k-- {
		wr := verbs.SendWR{WRID: m.next(), RemoteSRQN: l.srqn}
		switch m.r.IntN(8) {
		case 0, 1:
			m.send(l, &wr, left)
		case 2, 3:
			m.write(l, &wr, left)
		case 4, 5:
			m.read(l, &wr, left)
		case 6:
			m.atomic(l, &wr)
		case 7:
			m.place(l, &wr)
		}
		n := len(wr.Inline)
		for _, g := range wr.SGList {
			n += int(g.Length)
		}
		left = max(0, left-n)
		if k == 1 || m.r.IntN(2) == 0 {
			wr.Flags |= verbs.SendSignaled
			l.sent = append(l.sent, verbs.WC{WRID: wr.WRID, Opcode: sentOps[wr.Opcode], QPNum: l.qp.QPN()})
			switch wr.Opcode {
			case verbs.WRRDMARead:
				l.sent[len(l.sent)-1].ByteLen = uint32(n)
			case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
				l.sent[len(l.sent)-1].ByteLen = 8
			}
		}
		if m.r.IntN(8) == 0 {
			wr.Flags |= verbs.SendFence
		}
		m.note("%s: %d %v %v, %d bytes, to %#x, key %#x:%s", l.name, wr.WRID, wr.Opcode, wr.Flags, n, wr.RemoteAddr, wr.RKey,
			show(wr.SGList))
		l.sends = append(l.sends, wr)
	}
}

var sentOps = map[verbs.WROpcode]verbs.WCOpcode{
	verbs.WRSend: verbs.WCSend, verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMAWrite: verbs.WCRDMAWrite,
	verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite, verbs.WRRDMARead: verbs.WCRDMARead,
	verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap, verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd,
	verbs.WRFlush: verbs.WCFlush, verbs.WRAtomicWrite: verbs.WCAtomicWrite,
}

func (m *mixed) next() uint64 { m.id++; return m.id }

// content sets the data of a request, and returns it.
func (s *shaper) content(i int, wr *verbs.SendWR, n int) (data []byte) {
	wr.SGList, data = s.source(i, n)
	if n > 4096 || s.r.IntN(3) != 0 {
		return data
	}
	wr.Flags |= verbs.SendInline
	if s.r.IntN(2) == 0 {
		wr.Inline, wr.SGList = append([]byte{}, data...), nil
	}
	return data
}

// receive makes the receive for a message of n bytes, of which room bytes are written to it.
func (m *mixed) receive(l *lane, wr *verbs.SendWR, op verbs.WCOpcode, n, room int) []piece {
	list, to := m.sink(l.to, room+m.r.IntN(3)*m.r.IntN(100))
	wc := verbs.WC{WRID: m.next(), Opcode: op, ByteLen: uint32(n), QPNum: l.dest}
	if wr.Opcode == verbs.WRSendWithImm || wr.Opcode == verbs.WRRDMAWriteWithImm {
		wr.ImmData = m.r.Uint32()
		wc.ImmData, wc.WCFlags = wr.ImmData, verbs.WCWithImm
	}
	m.note("%s: receive %d:%s", l.name, wc.WRID, show(list))
	l.recvs, l.came = append(l.recvs, verbs.RecvWR{WRID: wc.WRID, SGList: list}), append(l.came, wc)
	return to
}

func (m *mixed) send(l *lane, wr *verbs.SendWR, most int) {
	n := m.length(most)
	wr.Opcode = []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm}[m.r.IntN(2)]
	to := m.receive(l, wr, verbs.WCRecv, n, n)
	expect(to, m.content(l.from, wr, n))
}

func (m *mixed) write(l *lane, wr *verbs.SendWR, most int) {
	p := m.free(m.dst[l.to], m.length(most), 1)
	wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, p.peer+uint64(p.off), p.rkey
	if m.r.IntN(3) == 0 {
		wr.Opcode = verbs.WRRDMAWriteWithImm
		m.receive(l, wr, verbs.WCRecvRDMAWithImm, p.n, 0)
	}
	expect([]piece{p}, m.content(l.from, wr, p.n))
}

func (m *mixed) read(l *lane, wr *verbs.SendWR, most int) {
	n := m.length(most)
	a := m.src[l.to][m.r.IntN(len(m.src[l.to]))]
	off := m.r.IntN(len(a.want) - n + 1)
	wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMARead, a.peer+uint64(off), a.rkey
	var to []piece
	wr.SGList, to = m.sink(l.from, n)
	expect(to, a.want[off:off+n])
}

func (m *mixed) atomic(l *lane, wr *verbs.SendWR) {
	p := m.free(m.dst[l.to], 8, 8)
	word := p.want[p.off : p.off+8]
	was := binary.NativeEndian.Uint64(word)
	wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRAtomicFetchAndAdd, p.peer+uint64(p.off), p.rkey
	wr.CompareAdd, wr.Swap = m.r.Uint64(), m.r.Uint64()
	var to []piece
	wr.SGList, to = m.sink(l.from, 8)
	expect(to, word)
	switch m.r.IntN(3) {
	case 0:
		binary.NativeEndian.PutUint64(word, was+wr.CompareAdd)
		return
	case 1:
		wr.CompareAdd = was
		binary.NativeEndian.PutUint64(word, wr.Swap)
	}
	wr.Opcode = verbs.WRAtomicCmpAndSwp
}

// place makes an ATOMIC WRITE or a FLUSH.
func (m *mixed) place(l *lane, wr *verbs.SendWR) {
	p := m.free(m.dst[l.to], 8, 8)
	wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRAtomicWrite, p.peer+uint64(p.off), p.rkey
	if m.r.IntN(2) == 0 {
		wr.Opcode, wr.Flush = verbs.WRFlush, verbs.Flush{Length: 8, Type: verbs.FlushGlobal, Level: verbs.FlushRange}
		return
	}
	expect([]piece{p}, m.content(l.from, wr, 8))
}

// complete polls the completions of a round: those of each QP and each receive queue come in order.
func (m *mixed) complete() {
	left := 0
	for _, l := range m.lanes {
		left += len(l.sent) + len(l.came)
	}
	var wcs [8]verbs.WC
	for begin := time.Now(); left > 0; {
		for _, e := range m.ends {
			n := get(e.cq.Poll(wcs[:]))(m)
			for i := range wcs[:n] {
				m.completed(&wcs[i])
			}
			left -= n
		}
		if time.Since(begin) > 20*time.Second {
			m.fail("%d completions are missing", left)
		}
	}
}

func (m *mixed) completed(wc *verbs.WC) {
	m.Helper()
	if wc.Status != verbs.WCSuccess {
		m.fail("request %d: %v", wc.WRID, wc.Err())
	}
	for _, l := range m.lanes {
		for _, list := range []*[]verbs.WC{&l.sent, &l.came} {
			if i := slices.Index(*list, *wc); i == 0 {
				*list = (*list)[1:]
				return
			}
		}
	}
	m.fail("unexpected completion %+v", wc)
}

package soft_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// datagrams sends from a UD QP to two others.
type datagrams struct {
	*shaper
	qp   *verbs.QP
	to   [2]*verbs.QP
	ahs  []*verbs.AH // the last one is of a group that both are in
	most int         // bytes of a message
	due  map[uint64]due
}

// due is a message that is expected, by the WRID of its receive.
type due struct {
	n     int
	to    []piece
	qp    *verbs.QP
	flags verbs.WCFlags
	imm   uint32
	path  verbs.GlobalRoute
}

// TestDatagramsOfAllShapes: datagrams of many lengths, cut into many SGEs of all kinds of memory, with IP_CSUM, TSO,
// inline or immediate data, to one QP or a group, along paths with other traffic classes, bring all bytes behind the
// header of their path and change no others.
func TestDatagramsOfAllShapes(t *testing.T) {
	onShapes(t, func(t *testing.T, a, b *end, bad bool, seed uint64) {
		if bad {
			t.Skip("nothing sends a lost datagram again")
		}
		d := &datagrams{shaper: newShaper(t, a, b, seed, 70000, 70000), most: get(a.ctx.QueryPort(1))(t).ActiveMTU.Bytes()}
		d.mtu = 1024
		d.open()
		for range 40 {
			d.begin()
			d.round()
			d.check()
		}
	})
}

func (d *datagrams) open() {
	d.qp = d.ends[0].qp(verbs.QPTypeUD, func(i *verbs.QPInitAttr) {
		shapeCaps(i)
		i.MaxTSOHeader, i.SendOpsFlags = 64, verbs.QPExWithSend|verbs.QPExWithTSO
	})
	must(d, d.qp.Connect(verbs.QPInfo{}, nil))
	group := verbs.GIDFromAddr(netip.MustParseAddr("239.4.7.92"))
	for i := range d.to {
		d.to[i] = d.ends[1].qp(verbs.QPTypeUD, func(i *verbs.QPInitAttr) { i.Cap.MaxRecvSGE = 6 })
		must(d, d.to[i].Connect(verbs.QPInfo{}, nil))
		must(d, d.to[i].AttachMcast(group, 0))
		d.Cleanup(func() { must(d, d.to[i].DetachMcast(group, 0)) })
	}
	attr := get(d.qp.AHAttrTo(get(d.to[0].LocalInfo())(d), nil))(d)
	for _, class := range []uint8{0, 8, 0xb8} {
		attr.GRH.TrafficClass, attr.GRH.HopLimit = class, 70+class
		d.address(attr)
	}
	attr.GRH.DGID = group
	d.address(attr)
}

func (d *datagrams) address(attr verbs.AHAttr) {
	ah := get(d.ends[0].pd.CreateAH(&attr))(d)
	d.Cleanup(func() { must(d, ah.Close()) })
	d.ahs = append(d.ahs, ah)
}

// round sends a few requests at once, which often have the same length. They go to single QPs or to the group, not to
// both: there is no order between these.
func (d *datagrams) round() {
	d.due = map[uint64]due{}
	paths := d.ahs[:len(d.ahs)-1]
	if d.r.IntN(3) == 0 {
		paths = d.ahs[len(d.ahs)-1:]
	}
	n := d.length(d.most)
	var wrs []verbs.SendWR
	for k := 1 + d.r.IntN(4); k > 0; k-- {
		if d.r.IntN(3) == 0 {
			n = d.length(d.most)
		}
		wrs = append(wrs, d.request(n, paths[d.r.IntN(len(paths))]))
	}
	must(d, d.qp.PostSend(wrs...))
	for i, wc := range d.ends[0].good(len(wrs)) {
		if wc.WRID != wrs[i].WRID || (wc.Opcode == verbs.WCTSO) != (wrs[i].Opcode == verbs.WRTSO) {
			d.fail("%+v", wc)
		}
	}
	for _, wc := range d.ends[1].good(len(d.due)) {
		d.received(&wc)
	}
}

// request makes a request of about n bytes, and posts the receives for its messages.
func (d *datagrams) request(n int, ah *verbs.AH) (wr verbs.SendWR) {
	wr = verbs.SendWR{WRID: d.r.Uint64(), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, RemoteQKey: verbs.DefaultQKey,
		AH: ah}
	var want [][]byte
	var flags verbs.WCFlags
	switch d.r.IntN(4) {
	case 0, 1:
		want = [][]byte{randomBytes(d.r, n)}
		if wr.SGList = d.store(want[0]); n <= 4096 && d.r.IntN(4) == 0 {
			wr.Flags |= verbs.SendInline
		}
	case 2:
		frame := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, randomBytes(d.r, min(n, d.most-40)))))
		wr.SGList = d.store(ipoib(frame))
		if wr.Flags |= verbs.SendIPCsum; len(frame) <= 4096 && d.r.IntN(4) == 0 {
			wr.Flags |= verbs.SendInline
		}
		want, flags = [][]byte{ipoib(summed(frame))}, verbs.WCIPCsumOK
	case 3:
		frame := eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2)))
		mss := 1 + min(n, d.most-60)
		data := randomBytes(d.r, d.r.IntN(min(5*mss, 12000)))
		wr.SGList = d.store(data)
		wr.Opcode, wr.TSO, flags = verbs.WRTSO, &verbs.TSO{Hdr: ipoib(frame), MSS: uint16(mss)}, verbs.WCIPCsumOK
		for _, f := range segments(frame, data, mss) {
			want = append(want, ipoib(f))
		}
	}
	if wr.Opcode == verbs.WRSend && d.r.IntN(2) == 0 {
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, d.r.Uint32()
		flags |= verbs.WCWithImm
	}
	to := d.r.IntN(2)
	wr.RemoteQPN = d.to[to].QPN()
	d.note("%v %v of %d messages to QP %d, %+v:%s", wr.Opcode, wr.Flags, len(want), to, ah.Attr().GRH, show(wr.SGList))
	if ah == d.ahs[len(d.ahs)-1] { // the group
		wr.RemoteQPN = 0xffffff
		d.expect(&wr, 1-to, want, flags)
	}
	d.expect(&wr, to, want, flags)
	return wr
}

// store puts data into the sender's memory and returns SGEs of it.
func (d *datagrams) store(data []byte) (list []verbs.SGE) {
	for _, part := range d.cut(len(data)) {
		p := d.free(d.src[0], part, 1)
		expect([]piece{p}, data)
		if p.dm != nil {
			must(d, p.dm.CopyTo(uint64(p.off), data[:part]))
		} else {
			copy(p.mem[p.off:], data[:part])
		}
		list, data = append(list, p.sge(p.off, part)), data[part:]
	}
	return list
}

// expect posts the receives of a QP for messages.
func (d *datagrams) expect(wr *verbs.SendWR, to int, messages [][]byte, flags verbs.WCFlags) {
	for _, data := range messages {
		list, pieces := d.sink(1, 40+len(data))
		expect(pieces, append(make([]byte, 40), data...))
		undefined(pieces, 40)
		id := uint64(len(d.due))
		d.due[id] = due{len(data), pieces, d.to[to], flags | verbs.WCGRH, wr.ImmData, wr.AH.Attr().GRH}
		d.note("receive %d of QP %d, %d bytes:%s", id, to, len(data), show(list))
		must(d, d.to[to].PostRecv(verbs.RecvWR{WRID: id, SGList: list}))
	}
}

// received checks the completion of a message, and the header of its path.
func (d *datagrams) received(wc *verbs.WC) {
	d.Helper()
	w, ok := d.due[wc.WRID]
	flags := wc.WCFlags
	if w.flags&verbs.WCIPCsumOK == 0 {
		flags &^= verbs.WCIPCsumOK // any bytes may have a right checksum
	}
	if !ok || int(wc.ByteLen) != 40+w.n || wc.QPNum != w.qp.QPN() || wc.SrcQP != d.qp.QPN() || flags != w.flags ||
		wc.ImmData != w.imm || wc.Opcode != verbs.WCRecv {
		d.fail("%+v, want %+v", wc, w)
	}
	delete(d.due, wc.WRID)
	var head []byte
	for _, p := range w.to {
		b := p.now(d)[p.off : p.off+p.n]
		head = append(head, b[:min(len(b), 40-len(head))]...)
	}
	ip := head[20:] // over IPv4
	if ip[0] != 0x45 || ip[1] != w.path.TrafficClass || ip[8] != w.path.HopLimit ||
		!bytes.Equal(ip[2:4], be16(20+8+12+8+(w.n+3)&^3+4+4*int(w.flags&verbs.WCWithImm)/int(verbs.WCWithImm))) {
		d.fail("receive %d: header % x, want %+v", wc.WRID, head, w)
	}
}

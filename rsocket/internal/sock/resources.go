package sock

import (
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// resources are the objects of a stream's device.
type resources struct {
	ch    *verbs.CompChannel
	event <-chan struct{}
	cq    *verbs.CQ
	qp    *verbs.QP
	mem   []byte // receive buffer, send buffer, tables and receives, in this order
	free  func() // frees mem
	rbuf  []byte
	sbuf  []byte
	table []byte
	recvs []byte // with words: the memory of the receives
	words *wordRecvs
	word  [wordLen]byte
	mrs   [4]*verbs.MR
	sges  [2]verbs.SGE // of pieces
	// inline has the bytes of an inline message. The owner of writing uses it.
	inline []byte
}

const rbufMR, sbufMR, tableMR, recvsMR = 0, 1, 2, 3

// setUp makes the objects, once the ID has a device, and posts the receives. mu is held.
//
// +checklocks:st.mu
func (st *Stream) setUp() (err error) {
	dev := st.id.Verbs()
	if st.opts, err = st.opts.effective(dev); err != nil {
		return err
	}
	o, r := &st.opts, &st.res
	st.words = requests(dev) > 1
	if r.ch, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	r.event = r.ch.Ready()
	seam.OnEvent(r.ch, st.asleep.wake)
	recvs := o.RQSize + spareRecvs
	if r.cq, err = dev.CreateCQ(o.SQSize*requests(dev)+recvs, &verbs.CQOptions{Channel: r.ch}); err != nil {
		return err
	}
	if err = r.register(st.id.PD(), o, st.words); err != nil {
		return err
	}
	init := &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, SigAll: true, Cap: verbs.QPCap{
		MaxSendWR: uint32(o.SQSize * requests(dev)), MaxRecvWR: uint32(recvs), MaxSendSGE: 2, MaxRecvSGE: 1,
		MaxInlineData: uint32(max(o.Inline, minInline)),
	}}
	if err = st.id.CreateQP(nil, init); err != nil {
		return err
	}
	r.qp = st.id.QP()
	o.Inline = int(init.Cap.MaxInlineData)
	st.m = rs.New(rs.Params{
		SQ: o.SQSize, RQ: o.RQSize, SendBuf: o.SendBuf, RecvBuf: o.RecvBuf, Table: r.table,
		Ring: rs.SGE{Addr: r.mrs[rbufMR].Addr(), Key: r.mrs[rbufMR].RKey()},
	})
	st.unposted = recvs
	return st.postRecvs()
}

// register allocates the memory and registers it with the device. ENOMEM for buffers that cannot be in memory.
func (r *resources) register(pd *verbs.PD, o *Options, words bool) (err error) {
	const align, most = 64, math.MaxInt / 2
	if o.SendBuf > most-o.RecvBuf {
		return Fail("rsocket", syscall.ENOMEM, "buffers of %d and %d bytes: must have at most %d together", o.SendBuf,
			o.RecvBuf, most)
	}
	table := (o.RecvBuf + o.SendBuf + align - 1) &^ (align - 1)
	recvs := table + rs.TableLen(rs.Unscale(rs.Scale(o.IOMaps)))
	total := recvs
	if words {
		total += wordLen * (o.RQSize + spareRecvs)
	}
	if r.mem, r.free, err = allocate(total); err != nil {
		return err
	}
	r.rbuf, r.sbuf, r.table = r.mem[:o.RecvBuf:o.RecvBuf], r.mem[o.RecvBuf:o.RecvBuf+o.SendBuf], r.mem[table:recvs]
	r.recvs = r.mem[recvs:total]
	const remote = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	for _, m := range []struct {
		i      int
		buf    []byte
		access verbs.AccessFlags
	}{{rbufMR, r.rbuf, remote}, {sbufMR, r.sbuf, verbs.AccessLocalWrite}, {tableMR, r.table, remote},
		{recvsMR, r.recvs, verbs.AccessLocalWrite}} {
		if len(m.buf) == 0 {
			continue
		}
		if r.mrs[m.i], err = pd.RegMR(m.buf, m.access); err != nil {
			return err
		}
	}
	return nil
}

// connData returns the private data of the request or of the reply.
func (st *Stream) connData() []byte {
	r, o := &st.res, &st.opts
	d := rs.ConnData{
		Flags: rs.HostFlags(), Credits: uint16(o.RQSize), IOMaps: rs.Scale(o.IOMaps),
		Table: rs.SGE{Addr: r.mrs[tableMR].Addr(), Key: r.mrs[tableMR].RKey(), Length: rs.TableEntries},
		Data:  rs.SGE{Addr: r.mrs[rbufMR].Addr(), Key: r.mrs[rbufMR].RKey(), Length: uint32(o.RecvBuf / 2)},
	}
	return d.Append(make([]byte, 0, rs.ConnDataLen))
}

// release destroys all objects. No call uses them: reading and writing were free after closed was set, and later
// owners of mu find streamClosed.
func (st *Stream) release() {
	st.mu.Lock()
	if st.state == streamClosed {
		st.mu.Unlock()
		return
	}
	st.state = streamClosed
	if st.keepalive != nil {
		st.keepalive.Stop()
	}
	st.wakeAll()
	publish := st.publish
	st.publish = publishing{}
	st.mu.Unlock()
	if st.res.qp != nil {
		_ = st.id.DestroyQP()
	}
	publish.release()
	for _, mr := range st.res.mrs {
		if mr != nil {
			_ = mr.Close()
		}
	}
	if st.res.cq != nil {
		_ = st.res.cq.Close()
	}
	if st.res.ch != nil {
		_ = st.res.ch.Close()
	}
	if st.res.mem != nil {
		st.res.free()
	}
	if st.id != nil {
		_ = st.id.Close()
	}
	st.hub.Leave()
}

// pieces returns the SGEs of data in the send buffer. They are valid until the next call.
func (r *resources) pieces(d *rs.Data) []verbs.SGE {
	list := r.sges[:0]
	for _, b := range d.Buf {
		if b.Len > 0 {
			list = append(list, r.mrs[sbufMR].SGE(b.Off, b.Len))
		}
	}
	return list
}

package conformance

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

const (
	allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead |
		verbs.AccessRemoteAtomic

	// waitLimit is the time-out for expected events.
	waitLimit = 30 * time.Second
	// moment is how long a case waits to see that nothing happens.
	moment = 5 * time.Millisecond
	// memory is the size of an end's region in bytes.
	memory = 64 << 10
	// canary fills memory that must not be written.
	canary = 0xa5
)

// end is one side of a case: an open device with one object of each kind.
type end struct {
	t            *T
	ctx          *verbs.Context
	pd           *verbs.PD
	sendCQ, rcvQ *verbs.CQ
	mr           *verbs.MR
	buf          []byte
}

// must ends the case if err is not nil.
func (t *T) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that a call failed with this errno.
func (t *T) refused(what string, err, errno error) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Errorf("%s: %v, want %v", what, err, errno)
	}
}

// get returns v or ends the case: get(f(x))(t).
func get[V any](v V, err error) func(t *T) V {
	return func(t *T) V {
		t.Helper()
		t.must(err)
		return v
	}
}

// closing closes x at the end of the case.
func closing[C interface{ Close() error }](t *T, x C) C {
	t.Cleanup(func() {
		if err := x.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			t.Error(err)
		}
	})
	return x
}

// end opens a device.
func (t *T) end() *end { return t.endOf(t.Open()) }

// ends opens two devices.
func (t *T) ends() (a, b *end) { return t.end(), t.end() }

// endOf creates the objects of an end.
func (t *T) endOf(ctx *verbs.Context) *end {
	e := &end{t: t, ctx: ctx}
	e.pd = closing(t, get(ctx.AllocPD())(t))
	e.sendCQ = e.cq(256, nil)
	e.rcvQ = e.cq(256, nil)
	e.buf = make([]byte, memory)
	e.fill()
	e.mr = e.region(e.buf, e.access())
	return e
}

// access returns all access flags that the device has.
func (e *end) access() verbs.AccessFlags {
	if attr := get(e.ctx.QueryDevice())(e.t); attr.DeviceCapFlags&verbs.DeviceFlushGlobal != 0 {
		return allAccess | verbs.AccessFlushGlobal
	}
	return allAccess
}

func (e *end) cq(n int, opts *verbs.CQOptions) *verbs.CQ {
	e.t.Helper()
	return closing(e.t, get(e.ctx.CreateCQ(n, opts))(e.t))
}

func (e *end) region(buf []byte, access verbs.AccessFlags) *verbs.MR {
	e.t.Helper()
	return closing(e.t, get(e.pd.RegMR(buf, access))(e.t))
}

// fill writes a pattern with a long period.
func (e *end) fill() {
	for i := range e.buf {
		e.buf[i] = byte(i*7 + i>>8*13)
	}
}

// blank fills the memory with the canary.
func (e *end) blank() { blank(e.buf) }

func blank(b []byte) {
	b[0] = canary
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// untouched reports whether a piece of memory contains only the canary.
func untouched(b []byte) bool { return bytes.Count(b, []byte{canary}) == len(b) }

// qp creates a QP; change may be nil.
func (e *end) qp(typ verbs.QPType, change func(*verbs.QPInitAttr)) *verbs.QP {
	e.t.Helper()
	init := verbs.QPInitAttr{
		Type: typ, SendCQ: e.sendCQ, RecvCQ: e.rcvQ,
		Cap: verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
	}
	if change != nil {
		change(&init)
	}
	return closing(e.t, get(e.pd.CreateQP(&init))(e.t))
}

// info returns the connection data of a QP.
func (t *T) info(qp *verbs.QP) verbs.QPInfo {
	t.Helper()
	return get(qp.LocalInfo())(t)
}

// connect returns a pair of connected QPs.
func connect(a, b *end, typ verbs.QPType, opts *verbs.ConnectOptions) (qa, qb *verbs.QP) {
	a.t.Helper()
	qa, qb = a.qp(typ, nil), b.qp(typ, nil)
	a.t.join(qa, qb, opts)
	return qa, qb
}

// join connects two QPs.
func (t *T) join(qa, qb *verbs.QP, opts *verbs.ConnectOptions) {
	t.Helper()
	ia, ib := t.info(qa), t.info(qb)
	t.must(qa.Connect(ib, longTimeout(opts)))
	t.must(qb.Connect(ia, longTimeout(opts)))
}

// longTimeout returns opts with an ACK timeout of 2 s unless they set one, so that no connection fails because
// the machine is busy.
func longTimeout(opts *verbs.ConnectOptions) *verbs.ConnectOptions {
	var o verbs.ConnectOptions
	if opts != nil {
		o = *opts
	}
	o.Timeout = cmp.Or(o.Timeout, 19)
	return &o
}

// to takes a QP to a state that needs no other attribute.
func (t *T) to(qp *verbs.QP, s verbs.QPState) {
	t.Helper()
	t.must(qp.Modify(&verbs.QPAttr{QPState: s}, verbs.QPAttrState))
}

// is checks a QP's state.
func (t *T) is(qp *verbs.QP, want verbs.QPState) {
	t.Helper()
	attr, _, err := qp.Query(verbs.QPAttrState)
	t.must(err)
	if qp.State() != want || attr.QPState != want {
		t.Errorf("the QP is in %v, and by its attributes in %v; want %v", qp.State(), attr.QPState, want)
	}
}

// send and recv return requests of n bytes at an offset of the end's memory.
func (e *end) send(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{e.mr.SGE(off, n)}}
}

func (e *end) recv(id uint64, off, n int) verbs.RecvWR {
	return verbs.RecvWR{WRID: id, SGList: []verbs.SGE{e.mr.SGE(off, n)}}
}

// rdma returns a one-sided request between the same offsets of both ends' memories.
func (e *end) rdma(op verbs.WROpcode, id uint64, peer *end, off, n int) verbs.SendWR {
	wr := e.send(id, off, n)
	wr.Opcode, wr.RemoteAddr, wr.RKey = op, peer.mr.Addr()+uint64(off), peer.mr.RKey()
	return wr
}

// poll waits for n completions.
func (t *T) poll(cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	var all []verbs.WC
	wcs := make([]verbs.WC, n)
	ok := t.Await(func() bool {
		got, err := cq.Poll(wcs[:n-len(all)])
		t.must(err)
		all = append(all, wcs[:got]...)
		return len(all) == n
	}, waitLimit)
	if !ok {
		t.Fatalf("%d of %d completions: %+v", len(all), n, all)
	}
	return all
}

// good waits for n successful completions.
func (t *T) good(cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	wcs := t.poll(cq, n)
	for i := range wcs {
		t.must(wcs[i].Err())
	}
	return wcs
}

// silent checks that there is no completion.
func (t *T) silent(why string, cqs ...*verbs.CQ) {
	t.Helper()
	t.Pause(moment)
	for _, cq := range cqs {
		var wcs [1]verbs.WC
		if n := get(cq.Poll(wcs[:]))(t); n != 0 {
			t.Fatalf("a completion although %s: %+v", why, wcs[0])
		}
	}
}

// event waits for an asynchronous event and acknowledges it.
func (e *end) event() verbs.AsyncEvent {
	e.t.Helper()
	var ev verbs.AsyncEvent
	ok := e.t.Await(func() bool {
		var err error
		ev, err = e.ctx.TryGetAsyncEvent()
		if err != nil && !errors.Is(err, verbs.EAGAIN) {
			e.t.Fatal(err)
		}
		return err == nil
	}, waitLimit)
	if !ok {
		e.t.Fatal("no asynchronous event")
	}
	ev.Ack()
	return ev
}

// noEvent checks that there is no asynchronous event. Everything that may raise one has happened before.
func (e *end) noEvent(why string) {
	e.t.Helper()
	e.t.Pause(moment)
	if ev, err := e.ctx.TryGetAsyncEvent(); !errors.Is(err, verbs.EAGAIN) {
		ev.Ack()
		e.t.Errorf("event %v although %s (%v)", ev.Type, why, err)
	}
}

// counted waits until a counter of the end's device has a value.
func (e *end) counted(name string, want uint64) {
	e.t.Helper()
	if !e.t.Await(func() bool { return e.t.Counter(e.ctx, name) >= want }, waitLimit) || e.t.Counter(e.ctx, name) != want {
		e.t.Errorf("the counter %s is %d, want %d", name, e.t.Counter(e.ctx, name), want)
	}
}

// ids lists the wr_ids of completions, which must all have this status.
func (t *T) ids(wcs []verbs.WC, status verbs.WCStatus) string {
	t.Helper()
	var ids []uint64
	for i := range wcs {
		ids = append(ids, wcs[i].WRID)
		if wcs[i].Status != status {
			t.Errorf("request %d completed with %s, want %s", wcs[i].WRID, wcs[i].Status.Name(), status.Name())
		}
	}
	return fmt.Sprint(ids)
}

// same compares two values.
func same[V comparable](t *T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// equal compares memory.
func (t *T) equal(what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Errorf("%s: the memory differs from byte %d on (%d and %d bytes)", what, i, len(got), len(want))
	}
}

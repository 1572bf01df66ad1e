package pingpong

import (
	"fmt"
	"io"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// Optional device features: on-demand paging, device memory, completions with timestamps.

// checkDevice returns an error if the device lacks a feature that the options need.
func (g *game) checkDevice() error {
	if !g.onDemand && !g.timestamps && !g.deviceMemory {
		return nil
	}
	attr, err := g.ctx.QueryDevice()
	if err != nil {
		return err
	}
	caps, need := attr.ODPCaps.RC, verbs.ODPSend|verbs.ODPRecv
	if g.typ == verbs.QPTypeXRCSend {
		caps = attr.XRCODPCaps
	}
	if g.srq || g.typ == verbs.QPTypeXRCSend {
		need = verbs.ODPSend | verbs.ODPSRQRecv
	}
	what := ""
	switch {
	case g.onDemand && (attr.ODPCaps.General&verbs.ODPSupport == 0 || caps&need != need):
		what = "on-demand paging"
	case g.implicitOnDemand && attr.ODPCaps.General&verbs.ODPSupportImplicit == 0:
		what = "implicit on-demand paging"
	case g.timestamps && attr.CompletionTimestampMask == 0:
		what = "completion timestamps"
	case g.deviceMemory && attr.MaxDMSize < uint64(g.size):
		what = fmt.Sprintf("%d bytes of device memory; it has %d", g.size, attr.MaxDMSize)
	default:
		return nil
	}
	return fmt.Errorf("%s does not have %s", g.ctx.Device(), what)
}

// makeMemory registers the buffer.
func (g *game) makeMemory() error {
	n := max(1, int(g.size)+g.grh)
	if g.deviceMemory {
		return g.makeDeviceMemory(n)
	}
	buf, err := verbs.AllocBuffer(n)
	if err != nil {
		return err
	}
	g.opened(func() error { return verbs.FreeBuffer(buf) })
	for i := range buf {
		buf[i] = g.fill
	}
	access := verbs.AccessLocalWrite
	if g.onDemand {
		access |= verbs.AccessOnDemand
	}
	g.buf = buf
	region := buf
	if g.implicitOnDemand { // the whole address space; its offsets are addresses
		region, g.base = nil, int(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	}
	if g.mr, err = g.pd.RegMR(region, access); err != nil {
		return err
	}
	g.opened(g.mr.Close)
	if !g.prefetch {
		return nil
	}
	return g.pd.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseMRFlush, g.sge(0, n))
}

// sge returns a part of the buffer.
func (g *game) sge(off, n int) verbs.SGE { return g.mr.SGE(g.base+off, n) }

func (g *game) makeDeviceMemory(n int) (err error) {
	if g.dm, err = g.ctx.AllocDM(verbs.AllocDMAttr{Length: uint64(n)}); err != nil {
		return err
	}
	g.opened(g.dm.Close)
	if g.mr, err = g.pd.RegDMMR(g.dm, 0, uint64(n), verbs.AccessZeroBased|verbs.AccessLocalWrite); err != nil {
		return err
	}
	g.opened(g.mr.Close)
	return nil
}

// payload returns the transferred part of the buffer, a copy if it is device memory.
func (g *game) payload() ([]byte, error) {
	if g.dm == nil {
		return g.buf[g.grh:][:g.size], nil
	}
	b := make([]byte, g.size)
	return b, g.dm.CopyFrom(b, 0)
}

// markPayload prepares the payload for the peer's -c.
func (g *game) markPayload() error {
	b, err := g.payload()
	if err != nil {
		return err
	}
	mark(b)
	if g.dm != nil {
		return g.dm.CopyTo(0, b)
	}
	return nil
}

func (g *game) makeCQ() (err error) {
	n, opts := int(g.rxDepth+g.numQP), verbs.CQOptions{Channel: g.channel}
	if g.timestamps {
		opts.WCFlags = verbs.WCExWithQPNum | verbs.WCExWithByteLen | verbs.WCExWithCompletionTimestamp
	}
	if g.cq, err = g.ctx.CreateCQ(n, &opts); err != nil {
		return err
	}
	g.opened(g.cq.Close)
	return nil
}

// poll polls completions and records the times of receives.
func (g *game) poll(wcs []verbs.WC) (n int, err error) {
	if !g.timestamps {
		return g.cq.Poll(wcs)
	}
	for err = g.cq.StartPoll(&wcs[0]); err == nil; err = g.cq.NextPoll(&wcs[n]) {
		if wcs[n].WRID == recvWRID {
			g.times.note(wcs[n].Timestamp)
		}
		if n++; n == len(wcs) {
			break
		}
	}
	if n > 0 {
		g.cq.EndPoll()
	}
	if err == verbs.ErrNoCompletion { //nolint:errorlint // NextPoll returns it unwrapped
		err = nil
	}
	return n, err
}

// A stopwatch measures the time between receives, in ticks of the device's clock.
type stopwatch struct {
	last, least, most, total uint64
	receives                 uint
}

func (s *stopwatch) note(now uint64) {
	if s.receives++; s.receives > 1 {
		took := now - s.last
		if s.receives == 2 || took < s.least {
			s.least = took
		}
		s.most = max(s.most, took)
		s.total += took
	}
	s.last = now
}

// report writes the lines of -t.
func (s *stopwatch) report(w io.Writer) {
	if s.receives < 2 {
		return
	}
	fmt.Fprintf(w, "Max receive completion clock cycles = %d\n", s.most)
	fmt.Fprintf(w, "Min receive completion clock cycles = %d\n", s.least)
	fmt.Fprintf(w, "Average receive completion clock cycles = %f\n", float64(s.total)/float64(s.receives-1))
}

// build posts a send with the work request builder (-N).
func (g *game) build(i int, wr *verbs.SendWR) error {
	x := g.builders[i]
	x.Start()
	x.WRID, x.WRFlags = wr.WRID, wr.Flags&^verbs.SendInline
	x.Send()
	x.SetSGE(wr.SGList[0])
	return x.Complete()
}

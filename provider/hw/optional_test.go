//go:build linux && (amd64 || arm64)

package hw_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/provider/hw"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestOptional uses what the kernel's software devices lack, with Verbena's own library: enhanced connection
// establishment, null regions, advice on regions, and timestamps.
func TestOptional(t *testing.T) {
	if os.Getenv(hw.TestOwn) == "" {
		t.Skip(hw.TestOwn + " is not set")
	}
	p := newPair(t, make([]byte, 1<<16))
	defer p.close(t)
	t.Run("ECE", p.ece)
	t.Run("null region", p.nullRegion)
	t.Run("advice", p.advice)
	t.Run("timestamps", p.timestamps)
}

// ece sets the options of a peer that has none.
func (p *pair) ece(t *testing.T) {
	qp := must(p.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: p.cq, RecvCQ: p.cq}))(t)
	if e := must(qp.QueryECE())(t); e != (verbs.ECE{}) {
		t.Errorf("%+v: the software device has no options", e)
	}
	if err := qp.SetECE(verbs.ECE{}); err != nil {
		t.Error(err)
	}
	if err := qp.SetECE(verbs.ECE{VendorID: 0x2c9, Options: 1}); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("options of a vendor: %v", err)
	}
	if err := qp.Close(); err != nil {
		t.Error(err)
	}
}

// nullRegion sends from a null region, which reads as zeroes.
func (p *pair) nullRegion(t *testing.T) {
	null := must(p.pd.AllocNullMR())(t)
	for i := range p.buf[:200] {
		p.buf[i] = 7
	}
	p.send(t, verbs.SGE{Addr: 12345, Length: 100, LKey: null.LKey()})
	for range 2 {
		if wc := next(t, p.cq); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	for i, b := range p.buf[:200] {
		if want := byte(i / 100 * 7); b != want {
			t.Fatalf("byte %d is %d, want %d", i, b, want)
		}
	}
	if err := null.Close(); err != nil {
		t.Error(err)
	}
}

// next waits for a completion.
func next(t testing.TB, cq *verbs.CQ) verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wcs [1]verbs.WC
	must(cq.Wait(ctx, wcs[:]))(t)
	return wcs[0]
}

// advice loads the pages of a region with on-demand paging.
func (p *pair) advice(t *testing.T) {
	mr := must(p.pd.RegMR(make([]byte, 1<<14), verbs.AccessLocalWrite|verbs.AccessOnDemand))(t)
	if err := p.pd.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseMRFlush, mr.SGE(0, 1<<14), mr.SGE(100, 1)); err != nil {
		t.Error(err)
	}
	outside := mr.SGE(0, 1<<14)
	outside.Length++
	if err := p.pd.AdviseMR(verbs.AdvicePrefetch, 0, outside); !errors.Is(err, unix.EFAULT) {
		t.Errorf("beyond the region: %v", err)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}

// timestamps compares those of completions with the device's clock. The CQ is asked for no other field.
func (p *pair) timestamps(t *testing.T) {
	p = newPairWith(t, make([]byte, 1<<12), &verbs.CQOptions{
		WCFlags: verbs.WCExWithCompletionTimestamp | verbs.WCExWithCompletionTimestampWallclock})
	defer p.close(t)
	before, wall := must(p.vctx.QueryRTValues())(t), time.Now()
	p.send(t, p.mr.SGE(1000, 100))
	wcs := []verbs.WC{next(t, p.cq), next(t, p.cq)}
	after, wallAfter := must(p.vctx.QueryRTValues())(t), time.Now()
	for _, wc := range wcs {
		at := time.Unix(0, int64(wc.Wallclock))
		if wc.Err() != nil || wc.Timestamp < before.RawClock || wc.Timestamp > after.RawClock || at.Before(wall) ||
			at.After(wallAfter) {
			t.Errorf("%+v at %v: want a timestamp from %d to %d, between %v and %v", wc, at, before.RawClock, after.RawClock,
				wall, wallAfter)
		}
		if wc.Opcode == verbs.WCRecv && wc.ByteLen != 100 {
			t.Errorf("%d bytes, want 100", wc.ByteLen)
		}
	}
}

// send posts a message and a receive of 200 bytes at the beginning of the region.
func (p *pair) send(t *testing.T, sge verbs.SGE) {
	t.Helper()
	recv := verbs.RecvWR{SGList: []verbs.SGE{p.mr.SGE(0, 200)}}
	send := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{sge}}
	for _, err := range []error{p.qb.PostRecv(recv), p.qa.PostSend(send)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

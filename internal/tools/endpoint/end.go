// Package endpoint implements the two processes of the demo and the benchmarks. Each has a device, a memory
// region and reliable QPs; the second executes the calls of the first. It imports verbs, rdmacm, rsocket
// and internal/tools/duo.
package endpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// DeviceName is the name of the device in both processes.
const DeviceName = "vrb_duo"

// Setenv configures a single device with this address. Call it before the devices are listed for the first
// time.
func Setenv(addr netip.Addr) error { return os.Setenv("VERBENA_DEVICES", deviceSpec(addr)) }

func deviceSpec(addr netip.Addr) string { return DeviceName + "=" + addr.String() }

// Options configure an End.
type Options struct {
	QPs   int // at least 1
	Depth int // of each send and receive queue
	Bytes int // of registered memory
	// Ordinary selects Go memory instead of verbs.AllocBuffer.
	Ordinary bool
}

// An End is the device, memory and QPs of one process.
type End struct {
	Buf []byte // registered with all access flags
	MR  *verbs.MR
	QPs []*verbs.QP

	ctx     *verbs.Context
	pd      *verbs.PD
	cq      *verbs.CQ
	closers []func() error
	wcs     [64]verbs.WC
}

// maxCQE bounds the CQ; fewer completions are outstanding at any time.
const maxCQE = 16384

// inline is the QPs' max_inline_data in bytes.
const inline = 64

// Open creates an End on the device.
func Open(o Options) (*End, error) {
	e := &End{}
	if err := e.open(o); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *End) open(o Options) (err error) {
	if e.ctx, err = verbs.Open(DeviceName); err != nil {
		return err
	}
	e.opened(e.ctx.Close)
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	e.opened(e.pd.Close)
	if err := e.equip(o); err != nil {
		return err
	}
	for range o.QPs {
		qp, err := e.pd.CreateQP(e.init(o))
		if err != nil {
			return err
		}
		e.opened(qp.Close)
		e.QPs = append(e.QPs, qp)
	}
	return nil
}

// equip makes memory and CQ.
func (e *End) equip(o Options) (err error) {
	if o.Ordinary {
		e.Buf = make([]byte, o.Bytes)
	} else {
		if e.Buf, err = verbs.AllocBuffer(o.Bytes); err != nil {
			return err
		}
		e.opened(func() error { return verbs.FreeBuffer(e.Buf) })
	}
	const all = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	if e.MR, err = e.pd.RegMR(e.Buf, all); err != nil {
		return err
	}
	e.opened(e.MR.Close)
	if e.cq, err = e.ctx.CreateCQ(min(2*o.QPs*o.Depth, maxCQE), nil); err != nil {
		return err
	}
	e.opened(e.cq.Close)
	return nil
}

// init is what the QPs are made of.
func (e *End) init(o Options) *verbs.QPInitAttr {
	depth := uint32(o.Depth)
	return &verbs.QPInitAttr{
		SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTypeRC,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inline},
	}
}

func (e *End) opened(closer func() error) { e.closers = append(e.closers, closer) }

// Close closes everything.
func (e *End) Close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i]())
	}
	e.closers = nil
	return errors.Join(errs...)
}

// Infos returns the connection data of the QPs.
func (e *End) Infos() ([]verbs.QPInfo, error) {
	infos := make([]verbs.QPInfo, len(e.QPs))
	for i, qp := range e.QPs {
		var err error
		if infos[i], err = qp.LocalInfo(); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// ackTimeout is 0.27 s, so that a request fails after 7 s without an answer. With the default it fails after 1.9 s, and
// the second process of a busy machine has waited as long for memory or a core.
const ackTimeout = 16

// Connect connects QP i with remote[i].
func (e *End) Connect(remote []verbs.QPInfo) error {
	if len(remote) != len(e.QPs) {
		return fmt.Errorf("%d QPs to connect with %d", len(e.QPs), len(remote))
	}
	for i, qp := range e.QPs {
		if err := qp.Connect(remote[i], &verbs.ConnectOptions{Timeout: ackTimeout}); err != nil {
			return err
		}
	}
	return nil
}

// silence is the time-out of Wait for the first completion.
const silence = 10 * time.Second

// Wait polls until it finds completions and returns them. They are valid until the next call. A failed
// completion is an error.
func (e *End) Wait() ([]verbs.WC, error) {
	var since time.Time
	for {
		for range 1 << 16 {
			wcs, err := e.Poll()
			if len(wcs) > 0 || err != nil {
				return wcs, err
			}
		}
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > silence {
			return nil, fmt.Errorf("no completion within %v", silence)
		}
	}
}

// Poll is Wait without waiting.
func (e *End) Poll() ([]verbs.WC, error) {
	n, err := e.cq.Poll(e.wcs[:])
	if err != nil {
		return nil, err
	}
	for i := range e.wcs[:n] {
		if err := e.wcs[i].Err(); err != nil {
			return nil, err
		}
	}
	return e.wcs[:n], nil
}

// WaitOne waits for exactly one completion.
func (e *End) WaitOne() (verbs.WC, error) {
	wcs, err := e.Wait()
	if err != nil {
		return verbs.WC{}, err
	}
	if len(wcs) != 1 {
		return verbs.WC{}, fmt.Errorf("%d completions instead of one", len(wcs))
	}
	return wcs[0], nil
}

// Fill writes a pattern that depends on the position and on every bit of seed.
func Fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x >> (i % 8 * 8))
	}
}

// Check compares every byte with the pattern of Fill.
func Check(b []byte, seed uint64) error {
	want := make([]byte, len(b))
	Fill(want, seed)
	if i := differ(b, want); i >= 0 {
		return fmt.Errorf("byte %d of %d is 0x%02x, not 0x%02x", i, len(b), b[i], want[i])
	}
	return nil
}

// differ returns the index of the first difference between two slices of equal length, -1 if there is none.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// Word returns the eight bytes of an atomic's operand as a number in native byte order.
func Word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// PutWord writes the eight bytes of an atomic's operand.
func PutWord(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

package raw

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// RecvFlags are the offloads of a receive queue.
type RecvFlags uint8

// The offloads; the values are those of enum ibv_wq_flags.
const (
	StripCVLAN RecvFlags = 1 << 0
	ScatterFCS RecvFlags = 1 << 1
	DelayDrop  RecvFlags = 1 << 2 // frames wait for a receive
	EndPadding RecvFlags = 1 << 3 // zeros follow a frame, to the end of the cache line
)

// RQ is the receive queue of a QP or of a work queue. The device's mu guards the state that frames change.
type RQ struct {
	Queue *transport.RecvQueue
	CQ    CQ
	PD    uint32
	Flags RecvFlags

	wqe     transport.RecvWQE
	cqe     transport.CQE // the one being pushed
	fcs     [FCSLen]byte
	delayed delayed // with DelayDrop
}

// failed is the reason why a queue has stopped: a receive has failed, or the CQ has overflowed.
type failed struct {
	receive *transport.CQE // the completion of the receive; nil: no completion can report the overflow
}

// take copies a frame into the oldest receive and completes it. It returns the failure that stops the queue, nil if
// none. The caller reports it when the queue has stopped, so that a program that polls the completion finds it stopped.
func (r *RQ) take(d *Device, a *arrival, qpn, tag uint32) *failed {
	if r.CQ.Broken() {
		return new(failed)
	}
	if !r.Queue.Take(&r.wqe) {
		if r.Flags&DelayDrop == 0 || !r.delayed.put(a, qpn, tag, d.cfg.Now()) {
			d.Counters.RxNoBuffer.Add(1)
		}
		return nil
	}
	var vlan uint16
	head, tail := a.b, []byte(nil)
	if r.Flags&StripCVLAN != 0 && a.h.Outer.VLANs > 0 && binary.BigEndian.Uint16(a.b[12:]) == typeCVLAN {
		vlan, head, tail = a.h.Outer.VLAN, a.b[:12], a.b[12+vlanLen:]
	}
	var fcs []byte
	if r.Flags&ScatterFCS != 0 {
		r.fcs = FCS(a.b)
		fcs = r.fcs[:]
	}
	e := &r.cqe
	*e = transport.CQE{
		WRID: r.wqe.WRID, Op: transport.CQRecv, QPN: qpn, ByteLen: uint32(len(head) + len(tail) + len(fcs)), Frame: true,
		Tag: uint64(tag), AppCtx: uint32(vlan), RQ: r.Queue,
	}
	if a.verified() {
		e.Flags |= transport.IPCsumOK
	}
	status, reason := r.scatter(d, int(e.ByteLen), head, tail, fcs)
	if status == transport.Success {
		r.CQ.Push(e)
		if r.CQ.Broken() {
			return new(failed)
		}
		return nil
	}
	e.Status, e.Cause = status, &transport.Failure{Status: status, QPN: qpn, Reason: reason}
	return &failed{e}
}

// report completes the receive that has failed.
func (r *RQ) report(f *failed) {
	if f.receive != nil {
		r.CQ.Push(f.receive)
	}
}

// scatter copies pieces into the receive's memory.
func (r *RQ) scatter(d *Device, n int, pieces ...[]byte) (transport.Status, string) {
	d.cfg.Memory.RLock()
	defer d.cfg.Memory.RUnlock()
	left := uint64(n)
	for i := range r.wqe.SGEs {
		s := &r.wqe.SGEs[i]
		if s.Length == 0 {
			continue // its key is not checked, as on other QPs
		}
		left -= min(left, uint64(s.Length))
		if _, err := d.cfg.Regions.Check(s.LKey, s.Addr, uint64(s.Length), r.PD, mr.LocalWrite); err != nil {
			return transport.LocProtErr, "the memory of a receive: " + err.Error()
		}
	}
	if left > 0 {
		return transport.LocLenErr, "the frame is longer than the receive's memory"
	}
	at := 0
	for i := range r.wqe.SGEs {
		s := &r.wqe.SGEs[i]
		if at == len(pieces) {
			break
		}
		to, _ := d.cfg.Regions.Check(s.LKey, s.Addr, uint64(s.Length), r.PD, mr.LocalWrite)
		for len(to) > 0 && at < len(pieces) {
			m, ok := mr.Copy(to, pieces[at])
			if !ok {
				return transport.LocProtErr, "the memory of a receive: " + mr.ErrUnmapped.Error()
			}
			to, pieces[at] = to[m:], pieces[at][m:]
			if len(pieces[at]) == 0 {
				at++
			}
		}
		if r.Flags&EndPadding != 0 && at == len(pieces) {
			pad := -(s.Addr + uint64(s.Length) - uint64(len(to))) & (cacheLine - 1)
			mr.Copy(to, zeros[:min(pad, uint64(len(to)))])
		}
	}
	return transport.Success, ""
}

const cacheLine = 64 // bytes

var zeros [cacheLine]byte

// flush completes all posted receives of a failed queue, and drops the frames that wait.
func (r *RQ) flush(qpn uint32) {
	r.delayed.clear()
	for r.Queue.Take(&r.wqe) {
		r.cqe = transport.CQE{
			WRID:   r.wqe.WRID,
			Op:     transport.CQRecv,
			Status: transport.WRFlushErr,
			QPN:    qpn,
			RQ:     r.Queue,
			Frame:  true,
		}
		r.cqe.Cause = &transport.Failure{Status: transport.WRFlushErr, QPN: qpn, Reason: "the queue is in the error state"}
		r.CQ.Push(&r.cqe)
	}
}

// reset removes the receives and their completions, and the frames that wait.
func (r *RQ) reset() {
	r.delayed.clear()
	r.CQ.PurgeSRQ(r.Queue)
	r.Queue.Clear()
}

// WQState is the state of a work queue; its values are those of enum ibv_wq_state.
type WQState uint32

// The states.
const (
	WQReset WQState = iota
	WQReady
	WQErr
)

// WQ is a work queue: receives for QPs that spread frames over several queues.
type WQ struct {
	RQ
	Num   uint32
	Fatal func() // reports a move to ERR that no completion reports

	dev   *Device
	state WQState
}

// AddWQ adds a work queue in RESET to the device.
func (d *Device) AddWQ(w *WQ) {
	w.dev = d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wqs = append(d.wqs, w)
}

// State returns the queue's state.
func (w *WQ) State() WQState {
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	return w.state
}

// Move makes a transition from a state: RESET to RDY, any to ERR, ERR to RESET. flags replaces the flags in mask.
// It returns false, and changes nothing, if there is no such transition or the queue is in another state.
func (w *WQ) Move(from, to WQState, flags, mask RecvFlags) bool {
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	legal := from == to || to == WQErr || from == WQReset && to == WQReady || from == WQErr && to == WQReset
	if w.state != from || !legal {
		return false
	}
	w.Flags = w.Flags&^mask | flags&mask
	switch w.state = to; {
	case to == WQErr:
		w.flush(w.Num)
	case to == WQReset && from != to:
		w.reset()
	}
	return true
}

// Posted must be called after receives were posted: in ERR it flushes them, in RDY the frames that wait get them.
func (w *WQ) Posted() {
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	switch w.state {
	case WQErr:
		w.flush(w.Num)
	case WQReady:
		w.resume()
	case WQReset:
	}
}

// resume gives receives to the frames that wait. The device's mu is held.
func (w *WQ) resume() {
	q := &w.delayed
	for q.n > 0 && w.state == WQReady {
		f := q.oldest()
		if w.dev.cfg.Now()-f.at > maxDelay {
			w.dev.Counters.RxNoBuffer.Add(1)
			q.pop()
			continue
		}
		if w.Queue.Posted() == 0 {
			return
		}
		w.failed(w.take(w.dev, q.arrival(f), f.qpn, f.tag))
		if q.n > 0 { // not cleared by a failure
			q.pop()
		}
	}
}

// Remove removes the queue's receives and completions. No RSS table contains it any more.
func (w *WQ) Remove() {
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	w.state = WQReset
	w.reset()
	w.dev.forget(w)
}

// receive processes a frame of a QP.
func (w *WQ) receive(a *arrival, qpn, tag uint32) {
	if w.state != WQReady {
		w.dev.Counters.RxNotReady.Add(1)
		return
	}
	w.resume() // frames keep their order
	if w.delayed.n > 0 && w.state == WQReady {
		if !w.delayed.put(a, qpn, tag, w.dev.cfg.Now()) {
			w.dev.Counters.RxNoBuffer.Add(1)
		}
		return
	}
	if w.state == WQReady {
		w.failed(w.take(w.dev, a, qpn, tag))
	}
}

// failed moves the queue to ERR if f is not nil.
func (w *WQ) failed(f *failed) {
	if f == nil {
		return
	}
	w.state = WQErr
	w.report(f)
	w.flush(w.Num)
	if f.receive == nil {
		w.Fatal()
	}
}

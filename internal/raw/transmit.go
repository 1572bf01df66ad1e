package raw

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// MaxTSO is the maximum payload of a TSO request in bytes.
const MaxTSO = 1 << 18

// sender is the transmit side of a QP.
type sender struct {
	limit RateLimit
	tat   int64 // time at which the limit permits the next frame
	timer *time.Timer
	frame []byte // the frame being built
	// changed is the frame that an ESP action made of it.
	changed []byte
	cut     cutting
	cqe     transport.CQE // the completion being pushed
}

// cutting is a TSO request in progress.
type cutting struct {
	Segmenter
	payload []byte
	at      int
}

// transmit processes the send queue until it is empty, or the state or the rate limit stops it. tx is held.
func (q *QP) transmit() {
	for q.unsent() {
		if !q.sends() {
			q.flushSends()
			return
		}
		if !q.allowed() {
			return
		}
		w := q.SQ.At(q.sent.Load())
		if w.Op == transport.OpTSO {
			q.segment(w)
		} else {
			q.sendOne(w)
		}
	}
}

// sendOne sends a request of one frame.
func (q *QP) sendOne(w *transport.SendWQE) {
	n := int(w.Length)
	if n < ethLen || n > q.longest() {
		q.failSend(w, transport.LocLenErr, "a frame is too short or longer than the network carries")
		return
	}
	b := q.room(n)
	if !q.gather(w, b) {
		return
	}
	if w.Flags&transport.IPCsum != 0 {
		var h Headers
		if Parse(b, &h) {
			FillChecksums(b, &h)
		}
	}
	q.out(b)
	q.complete(w, transport.CQSend)
}

// longest returns the length of the longest frame, with a VLAN tag.
func (q *QP) longest() int { return int(q.dev.mtu.Load()) + vlanLen }

// room returns memory for a frame of n bytes.
func (q *QP) room(n int) []byte {
	if cap(q.frame) < n {
		q.frame = make([]byte, max(n, q.longest()))
	}
	return q.frame[:n]
}

// gather copies a request's data to b, which is as long. If it returns false the request has failed.
func (q *QP) gather(w *transport.SendWQE, b []byte) bool {
	if w.Flags&transport.Inline != 0 {
		copy(b, w.Inline)
		return true
	}
	q.dev.cfg.Memory.RLock()
	defer q.dev.cfg.Memory.RUnlock()
	for i := range w.SGEs {
		n := w.SGEs[i].Length
		if n == 0 {
			continue // its key is not checked, as on other QPs
		}
		if err := q.copySGE(&w.SGEs[i], b[:n]); err != nil {
			q.failSend(w, transport.LocProtErr, "the memory of a send: "+err.Error())
			return false
		}
		b = b[n:]
	}
	return true
}

// copySGE copies the bytes of an SGE to b. Check returns those of a null region in several pieces.
func (q *QP) copySGE(s *transport.SGE, b []byte) error {
	for at := uint64(0); ; {
		from, err := q.dev.cfg.Regions.Check(s.LKey, s.Addr+at, uint64(len(b)), q.PD, 0)
		if err != nil {
			return err
		}
		n, ok := mr.Copy(b, from)
		if !ok {
			return mr.ErrUnmapped
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
		at += uint64(n)
	}
}

// segment sends frames of a TSO request until the rate limit stops it.
func (q *QP) segment(w *transport.SendWQE) {
	c := &q.cut
	if !q.begun.Load() {
		n := int(w.Length)
		if len(w.Inline)+min(n, int(w.MSS)) > q.longest() || n > MaxTSO {
			q.failSend(
				w,
				transport.LocLenErr,
				"header and segment make a frame that is longer than the network carries, or there is too much data",
			)
			return
		}
		if err := c.Start(w.Inline, int(w.MSS), n); err != nil {
			q.failSend(w, transport.LocQPOpErr, err.Error())
			return
		}
		if cap(c.payload) < n {
			c.payload = make([]byte, n)
		}
		c.payload, c.at = c.payload[:n], 0
		if !q.gather(w, c.payload) {
			return
		}
		q.begun.Store(true)
	}
	for q.sends() {
		if !q.allowed() {
			return
		}
		b := q.room(len(w.Inline) + min(c.left, c.mss))
		hdr, n, ok := c.Next(b)
		if !ok {
			q.begun.Store(false)
			q.complete(w, transport.CQTSO)
			return
		}
		c.at += copy(b[hdr:], c.payload[c.at:c.at+n])
		c.Finish(b)
		q.out(b)
	}
}

// out sends a frame and accounts for it in the rate limit.
func (q *QP) out(b []byte) {
	q.dev.send(b, &q.changed)
	if q.limit.Kbps == 0 {
		return
	}
	burst := int64(burstTime)
	if q.limit.Burst > 0 {
		burst = q.cost(int64(q.limit.Burst))
	}
	q.tat = max(q.tat, q.dev.cfg.Now()-burst) + q.cost(int64(len(b)))
}

// cost returns the time of n bytes at the QP's rate in nanoseconds.
func (q *QP) cost(n int64) int64 { return n * 8e6 / int64(q.limit.Kbps) }

// allowed reports whether the rate limit permits a frame now. If not, the QP pauses until it does.
func (q *QP) allowed() bool {
	if q.limit.Kbps == 0 {
		return true
	}
	wait := q.tat - q.dev.cfg.Now()
	if wait <= 0 {
		q.pause.Store(0)
		return true
	}
	q.pause.Store(q.tat)
	if q.dev.cfg.Manual {
		return false
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Duration(wait), q.kick)
	} else {
		q.timer.Reset(time.Duration(wait))
	}
	return false
}

// complete completes a request that was sent.
func (q *QP) complete(w *transport.SendWQE, op transport.CQOp) {
	slot := q.sent.Load()
	if q.SigAll || w.Flags&transport.Signaled != 0 {
		q.cqe = transport.CQE{
			WRID:    w.WRID,
			Op:      op,
			QPN:     q.Num,
			SQ:      q.SQ,
			Send:    true,
			Slot:    slot,
			Frame:   true,
			ByteLen: w.Length,
		}
		q.SendCQ.Push(&q.cqe)
	}
	q.sent.Store(slot + 1)
	if q.SendCQ.Broken() {
		q.broke()
	}
}

// broke moves the QP to ERR because its send CQ has overflowed. tx is held, the device's mu is not.
func (q *QP) broke() {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	q.overrun()
}

// failSend moves the QP to SQE and completes a request with an error.
func (q *QP) failSend(w *transport.SendWQE, status transport.Status, reason string) {
	if q.state.CompareAndSwap(uint32(transport.RTS), uint32(transport.SQE)) {
		q.Up.StateChanged(transport.SQE)
	}
	slot := q.sent.Load()
	q.cqe = transport.CQE{WRID: w.WRID, Status: status, QPN: q.Num, SQ: q.SQ, Send: true, Slot: slot, Frame: true}
	q.cqe.Cause = &transport.Failure{Status: status, QPN: q.Num, Reason: reason}
	q.SendCQ.Push(&q.cqe)
	q.begun.Store(false)
	q.sent.Store(slot + 1)
}

// flushSends completes all posted requests with a flush error, in SQE or ERR. tx is held.
func (q *QP) flushSends() {
	q.begun.Store(false)
	for i := q.sent.Load(); i != q.SQ.Posted(); i++ {
		w := q.SQ.At(i)
		q.cqe = transport.CQE{
			WRID:   w.WRID,
			Status: transport.WRFlushErr,
			QPN:    q.Num,
			SQ:     q.SQ,
			Send:   true,
			Slot:   i,
			Frame:  true,
		}
		q.cqe.Cause = &transport.Failure{
			Status: transport.WRFlushErr,
			QPN:    q.Num,
			Reason: "the queue pair is in the error state",
		}
		q.SendCQ.Push(&q.cqe)
		q.sent.Store(i + 1)
	}
}

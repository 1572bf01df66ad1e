package raw

import "time"

// Bounds of the frames that wait for a receive of a queue with DelayDrop.
const (
	maxDelayed      = 64
	maxDelayedBytes = 1 << 18
	maxDelay        = int64(100 * time.Millisecond)
	keptBuffer      = 1 << 12 // bytes; larger buffers are not kept
)

// delayed is a queue of frames that wait for a receive. Its memory is allocated on first use.
type delayed struct {
	frames []delayedFrame // a ring
	first  int
	n      int
	bytes  int
	cur    arrival
}

type delayedFrame struct {
	buf      []byte
	at       int64 // the time of its arrival
	qpn, tag uint32
	csumOK   bool
}

// put appends a frame; false: there is no room.
func (q *delayed) put(a *arrival, qpn, tag uint32, now int64) bool {
	if q.n == maxDelayed || q.bytes+len(a.b) > maxDelayedBytes {
		return false
	}
	if q.frames == nil {
		q.frames = make([]delayedFrame, maxDelayed)
	}
	f := &q.frames[(q.first+q.n)%maxDelayed]
	f.buf = append(f.buf[:0], a.b...)
	f.at, f.qpn, f.tag, f.csumOK = now, qpn, tag, a.verified()
	q.n++
	q.bytes += len(a.b)
	return true
}

// oldest returns the frame that has waited longest. There is one.
func (q *delayed) oldest() *delayedFrame { return &q.frames[q.first] }

// arrival makes the frame one that arrives.
func (q *delayed) arrival(f *delayedFrame) *arrival {
	a := &q.cur
	a.b = f.buf
	Parse(a.b, &a.h)
	a.csumOK, a.checked = f.csumOK, true
	return a
}

// pop removes the oldest frame.
func (q *delayed) pop() {
	f := q.oldest()
	q.bytes -= len(f.buf)
	if cap(f.buf) > keptBuffer {
		f.buf = nil
	}
	q.first = (q.first + 1) % maxDelayed
	q.n--
}

func (q *delayed) clear() {
	for q.n > 0 {
		q.pop()
	}
}

package iwtcp

import "slices"

// A program that polls looks at the memory of some connections in each poll. Their peers then make no system call to
// wake this side. All others sleep until their socket has an event.

// warmQP is a QP whose memory pollers look at.
type warmQP struct {
	q    *QP
	idle int // looks that found nothing, in sequence
}

const (
	maxHot = 16
	// maxLooks is how many looks may find nothing before the peer has to wake this side again.
	maxLooks = 4096
	// socketsEvery is the number of polls of which one looks at the sockets, while memory is looked at.
	socketsEvery = 16
)

// heat makes pollers look at the memory of a QP. The goroutine must not wait for sockets then: the program may stop
// polling at any time.
//
// +checklocks:l.turn
func (l *loop) heat(q *QP) {
	if len(l.hot) >= maxHot || !q.warm() {
		return
	}
	l.hot = append(l.hot, warmQP{q: q})
	if !l.warm.Swap(true) {
		l.rouse()
	}
}

// lookAll looks at the memory of QPs for a poller. It reports whether the poller need not look at sockets.
//
// +checklocks:l.turn
func (l *loop) lookAll() (enough bool) {
	if len(l.hot) == 0 {
		return false
	}
	for i := 0; i < len(l.hot); i++ {
		h := &l.hot[i]
		if h.q.look(l.buf) {
			h.idle = 0
		} else if h.idle++; (h.idle > maxLooks || !h.q.nearby.Load()) && h.q.cool() {
			l.hot = slices.Delete(l.hot, i, i+1)
			i--
		}
	}
	l.warm.Store(len(l.hot) > 0)
	l.looks++
	return l.looks%socketsEvery != 0 && !l.some.Load()
}

// coolAll makes all QPs sleep, because this goroutine is about to. A QP that has something to receive receives it
// instead: no event reports it, and the program may have stopped to poll. coolAll reports false then.
//
// +checklocks:l.turn
func (l *loop) coolAll() bool {
	for i := len(l.hot) - 1; i >= 0; i-- {
		if q := l.hot[i].q; q.cool() {
			l.hot = slices.Delete(l.hot, i, i+1)
		} else {
			q.look(l.buf)
		}
	}
	l.warm.Store(len(l.hot) > 0)
	return len(l.hot) == 0
}

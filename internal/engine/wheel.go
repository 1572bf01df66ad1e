package engine

import (
	"math"
	"math/bits"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// A wheel is a hierarchical timer wheel: six levels of 64 slots. A slot of the lowest level is one tick of 1.024 us,
// so the wheel spans 19 hours. Arming and cancelling take constant time. A QP has one timer, whose node is in its
// Sched. A timer fires at its deadline or up to one tick later, never before.
//
// A QP is at the level of the highest group of six bits in which its tick differs from the wheel's position. So all
// QPs of a level are due after the position and before all QPs of the levels above.
type wheel struct {
	pos   int64 // last processed tick
	due   int64 // if known: the tick of the slot that is due first, or noTick
	known bool
	used  [wheelLevels]uint64
	slot  [wheelLevels][wheelSlots]*transport.QP
}

const (
	tickShift   = 10
	slotShift   = 6
	wheelSlots  = 1 << slotShift
	wheelLevels = 6
	wheelSpan   = 1 << (slotShift * wheelLevels)
	noTick      = math.MaxInt64
)

// start sets the position of an empty wheel.
func (w *wheel) start(now int64) { w.pos = now >> tickShift }

// arm sets the timer of qp to deadline, whether it is armed or not.
func (w *wheel) arm(qp *transport.QP, deadline int64) {
	w.cancel(qp)
	qp.Sched.Deadline = deadline
	w.insert(qp)
}

func (w *wheel) insert(qp *transport.QP) {
	tick := qp.Sched.Deadline>>tickShift + 1 // later than the deadline by at most one tick
	if tick <= w.pos {
		tick = w.pos + 1
	}
	if tick-w.pos >= wheelSpan {
		tick = w.pos + wheelSpan - 1 // inserted again at that tick
	}
	level := (63 - bits.LeadingZeros64(uint64(tick^w.pos)|(wheelSlots-1))) / slotShift
	if level >= wheelLevels { // the distance fits, but a carry exceeds the top level
		level = wheelLevels - 1
	}
	i := tick >> (slotShift * level) & (wheelSlots - 1)
	head := &w.slot[level][i]
	s := &qp.Sched
	s.TimerSlot = uint16(level<<slotShift|int(i)) + 1
	s.TimerPrev, s.TimerNext = nil, *head
	if *head != nil {
		(*head).Sched.TimerPrev = qp
	}
	*head = qp
	w.used[level] |= 1 << i
	w.due = min(w.due, tick>>(slotShift*level)<<(slotShift*level))
}

// cancel removes qp from the wheel if it is armed.
func (w *wheel) cancel(qp *transport.QP) {
	s := &qp.Sched
	if s.TimerSlot == 0 {
		return
	}
	level, i := (s.TimerSlot-1)>>slotShift, (s.TimerSlot-1)&(wheelSlots-1)
	s.TimerSlot = 0
	if s.TimerNext != nil {
		s.TimerNext.Sched.TimerPrev = s.TimerPrev
	}
	if s.TimerPrev != nil {
		s.TimerPrev.Sched.TimerNext = s.TimerNext
	} else {
		w.slot[level][i] = s.TimerNext
		if s.TimerNext == nil {
			w.used[level] &^= 1 << i
			w.known = false
		}
	}
	s.TimerNext, s.TimerPrev = nil, nil
}

// nextSlot returns the slot that is due first and its tick, noTick if all are empty.
func (w *wheel) nextSlot() (level int, i int64, tick int64) {
	for level = range w.used {
		if w.used[level] == 0 {
			continue
		}
		shift := slotShift * level
		// Slots of the top level before the position belong to the next turn.
		ahead := w.used[level]
		cur := w.pos >> shift & (wheelSlots - 1)
		turn := w.pos >> (shift + slotShift)
		if later := ahead &^ (1<<(cur+1) - 1); later != 0 {
			ahead = later
		} else {
			turn++
		}
		i = int64(bits.TrailingZeros64(ahead))
		return level, i, (turn<<slotShift | i) << shift
	}
	return 0, 0, noTick
}

// dueTick returns the tick of nextSlot. Each message asks for it several times.
func (w *wheel) dueTick() int64 {
	if !w.known {
		_, _, w.due = w.nextSlot()
		w.known = true
	}
	return w.due
}

// next returns the time at which advance has work, or transport.Never. It may precede the first deadline, when QPs
// must move to a lower level.
func (w *wheel) next() int64 {
	tick := w.dueTick()
	if tick == noTick {
		return transport.Never
	}
	return tick << tickShift
}

// advance moves the wheel to now and calls fire for each QP whose deadline has passed, with its timer disarmed. fire
// may arm and cancel timers.
func (w *wheel) advance(now int64, fire func(*transport.QP)) {
	target := now >> tickShift
	for w.dueTick() <= target {
		level, i, tick := w.nextSlot()
		w.pos = tick
		for head := &w.slot[level][i]; *head != nil; {
			qp := *head
			w.cancel(qp)
			if qp.Sched.Deadline>>tickShift+1 <= tick {
				fire(qp)
			} else {
				w.insert(qp)
			}
		}
	}
	w.pos = max(w.pos, target)
}

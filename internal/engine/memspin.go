package engine

import (
	"runtime"
)

// memSpin detects programs that wait by reading memory that a peer writes to. They poll a CQ now and then, for the
// completions of their own requests, so the background goroutine dozes, and packets wait until the doze ends. The sign
// is a doze after which packets waited although the program, which used its core, had stopped polling: a program that
// polls, but was preempted, used none. After some signs the goroutine does not doze for a while.
//
// Such a program polls seldom if its packets wait for long, and then the goroutine parks instead of dozing. A park that
// a packet has ended is a sign under the same condition.
type memSpin struct {
	dozed  bool         // a doze or a park has just ended
	parked bool         // it was a park
	began  int64        // its time, ns
	cpu    int64        // CPU time of the process then, ns
	time   func() int64 // spin.CPUTime
	signs  int
	until  int64 // no doze until then, ns
	period int64 // length of that period, ns
}

const (
	// signsNeeded is the number of signs before the first period. Each doze without a sign takes one back.
	signsNeeded = 2
	// A period doubles each time that the doze after it is a sign, too.
	minMemPeriod = 50_000_000
	maxMemPeriod = 1_600_000_000
	// seldomest is the longest interval between polls of a program whose parks are signs, ns.
	seldomest = 50_000_000
	// leastPark is the shortest park that is a sign, ns: after a shorter one no packet has waited.
	leastPark = 200_000
	// fewCores is the number of processors up to which two programs that spin leave none for the engine.
	fewCores = 3
)

// on reports whether the goroutine must not doze.
func (m *memSpin) on(now int64) bool { return now < m.until }

// begin notes the begin of a doze.
func (m *memSpin) begin(now int64) { m.dozed, m.parked, m.began, m.cpu = true, false, now, m.time() }

// park notes the begin of a park. last is the time of the program's last poll.
func (m *memSpin) park(now, last int64) {
	if last <= 0 || now-last > seldomest {
		return
	}
	m.begin(now)
	m.parked = true
}

// looked notes the first look for packets after a doze or a park. late reports whether packets waited although the
// program does not poll.
func (m *memSpin) looked(now int64, late bool) {
	if !m.dozed {
		return
	}
	m.dozed = false
	if m.parked && (!late || now-m.began < leastPark) {
		return // the program itself has ended the park
	}
	switch {
	case !late || m.time()-m.cpu < (now-m.began)/2:
		m.signs = max(m.signs-1, 0)
		if m.signs == 0 {
			m.period = 0
		}
	case m.signs+1 < signsNeeded:
		m.signs++
	default:
		m.signs = signsNeeded
		m.period = min(max(2*m.period, minMemPeriod), maxMemPeriod)
		m.until = now + m.period
	}
}

// lingers reports whether looking longer before parking makes sense now: beside programs that spin it takes a core,
// which there must be.
func (m *memSpin) lingers(now int64) bool { return !m.on(now) || runtime.NumCPU() > fewCores }

// naps reports whether short sleeps between looks are better than parking now: two programs that spin leave no core for
// looking, and a packet that ends a park wakes several threads in turn, each of which waits for a core.
func (m *memSpin) naps(now int64) bool { return m.on(now) && !m.lingers(now) }

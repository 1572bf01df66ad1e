package engine

import (
	"runtime"
	"testing"
)

// dozes lets a goroutine doze n times for a millisecond, in which the program uses used ns of CPU time. It returns the
// time of the end.
func dozes(m *memSpin, now int64, n int, used int64, late bool) int64 {
	cpu := int64(0)
	m.time = func() int64 { return cpu }
	for range n {
		m.begin(now)
		now += 1e6
		cpu += used
		m.looked(now, late)
	}
	return now
}

// A program that spins while packets wait is taken for one that waits by reading memory, for longer and longer.
func TestProgramsThatReadMemoryAreRecognised(t *testing.T) {
	var m memSpin
	now := dozes(&m, 1e9, 1, 1e6, true)
	if m.on(now) {
		t.Error("one sign is enough")
	}
	now = dozes(&m, now, 1, 1e6, true)
	if !m.on(now) || m.on(now+minMemPeriod) {
		t.Error("after two signs: no period of the least length")
	}
	now = dozes(&m, now+minMemPeriod, 1, 1e6, true)
	if !m.on(now+minMemPeriod) || m.on(now+2*minMemPeriod) {
		t.Error("the second period is not twice as long")
	}
	now = dozes(&m, now+2*minMemPeriod, 20, 1e6, true)
	if !m.on(now+maxMemPeriod-1) || m.on(now+maxMemPeriod) {
		t.Error("the period is unlimited")
	}
	now = dozes(&m, now+maxMemPeriod, signsNeeded, 1e6, false)
	if now = dozes(&m, now, 1, 1e6, true); m.on(now) {
		t.Error("one sign is enough after a time without")
	}
}

// A poller that was preempted used no CPU time while packets waited.
func TestPreemptedPollersStillPoll(t *testing.T) {
	var m memSpin
	if now := dozes(&m, 1e9, 10, 1e5, true); m.on(now) {
		t.Error("a preempted program is taken for one that spins")
	}
	m.looked(2e9, true) // without a doze before
	if m.signs != 0 {
		t.Error("a look without a doze counts")
	}
}

// While a program reads memory, its goroutine looks all the time if there is a core for it, and naps between looks if
// not.
func TestNapsReplaceLookingOnFewCores(t *testing.T) {
	var m memSpin
	now := dozes(&m, 1e9, signsNeeded, 1e6, true)
	few := runtime.NumCPU() <= fewCores
	if m.naps(now) != few || m.lingers(now) == few {
		t.Errorf("on %d processors: naps %v, looks all the time %v", runtime.NumCPU(), m.naps(now), m.lingers(now))
	}
	if now += minMemPeriod; m.naps(now) || !m.lingers(now) {
		t.Error("it naps although no program reads memory")
	}
}

// parks lets a background goroutine park n times for d ns, in which the program uses used ns of CPU time, and polls at
// the beginning.
func parks(m *memSpin, now int64, n int, d, used int64, late bool) int64 {
	cpu := int64(0)
	m.time = func() int64 { return cpu }
	for range n {
		m.park(now, now-1)
		now += d
		cpu += used
		m.looked(now, late)
	}
	return now
}

// The packets of a program that reads memory wait while the goroutine parks, too: the program polls too seldom for a
// doze then.
func TestParksAreSignsOfProgramsThatReadMemory(t *testing.T) {
	var m memSpin
	now := parks(&m, 1e9, 1, 2e6, 2e6, true)
	now = parks(&m, now, 5, 1e5, 1e5, true) // short parks say nothing, nor do those that the program itself has ended
	now = parks(&m, now, 5, 2e6, 2e6, false)
	if m.signs != 1 || m.on(now) {
		t.Errorf("%d signs after one", m.signs)
	}
	if now = parks(&m, now, 1, 2e6, 2e6, true); !m.on(now) {
		t.Error("two parks of a program that spins are not enough")
	}
}

// A program that sleeps, or that has not polled for long, is no program that reads memory.
func TestParksOfOtherProgramsAreNoSigns(t *testing.T) {
	var m memSpin
	if now := parks(&m, 1e9, 10, 2e6, 1e5, true); m.on(now) {
		t.Error("a program that sleeps is taken for one that spins")
	}
	for i, last := range []int64{-pollerGone, 0, 2e9 - seldomest - 1} {
		cpu := int64(0)
		m = memSpin{time: func() int64 { return cpu }}
		for range 10 {
			m.park(2e9, last)
			cpu += 2e6
			m.looked(2e9+2e6, true)
		}
		if m.on(2e9 + 2e6) {
			t.Errorf("%d: a program that does not poll is taken for one that spins", i)
		}
	}
}

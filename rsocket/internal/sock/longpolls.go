package sock

import (
	"sync"
	"time"
)

// LongPolls decides whether a wait polls for longPoll instead of the spin budget. To sleep and to be woken takes the
// threads of engine and program 0.2 ms and more of processor time, so polling is cheaper while answers come within that
// time. If they take longer, polling is in vain. So waits poll for long as long as that succeeds, and try it
// now and then otherwise. It is for waits whose spin budget is the default. The zero LongPolls is ready for use.
type LongPolls struct {
	mu sync.Mutex
	// +checklocks:mu
	credit int // rises when a long poll succeeds, falls when it was in vain
	// +checklocks:mu
	short uint // waits in a row that polled for the budget
}

const (
	longPoll   = 300 * time.Microsecond
	maxCredit  = 16
	lossInVain = 4  // of credit
	trialEvery = 32 // waits
)

// begin returns how long the next wait polls, at least budget, and whether that is long.
func (p *LongPolls) begin(budget time.Duration) (limit time.Duration, long bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.short++; p.credit == 0 && p.short < trialEvery || budget >= longPoll {
		return budget, false
	}
	p.short = 0
	return longPoll, true
}

// end records whether a long poll that began at a time has found what it was for. One that took much longer than
// longPoll has waited for a core that others use, so it was in vain.
func (p *LongPolls) end(begin time.Time, found bool) {
	took := time.Since(begin)
	p.mu.Lock()
	defer p.mu.Unlock()
	if found && took <= 2*longPoll {
		p.credit = min(p.credit+1, maxCredit)
	} else {
		p.credit = max(p.credit-lossInVain, 0)
	}
}

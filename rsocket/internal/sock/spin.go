package sock

import "time"

// A Spin is the polling of a wait before it sleeps. The zero value has not begun.
type Spin struct {
	start time.Time // of the first poll
	polls int
	limit time.Duration // how long it polls
	long  *LongPolls    // of a long poll, until it ends; else nil
}

func (s *Spin) begun() bool { return !s.start.IsZero() }

// Begin lets the polling take the spin budget, or longer if no file sets the budget and long decides so. A nil long
// never does.
func (s *Spin) Begin(budget time.Duration, long *LongPolls) {
	*s = Spin{limit: budget}
	if long == nil || budget <= 0 || !Config().DefaultPolling {
		return
	}
	var is bool
	if s.limit, is = long.begin(budget); is {
		s.long = long
	}
}

// AtMost shortens the polling to d.
func (s *Spin) AtMost(d time.Duration) { s.limit = min(s.limit, d) }

// Busy reports whether the caller must poll once more. It reads the clock at every eighth poll.
func (s *Spin) Busy() bool {
	if s.polls%clockEvery != 0 {
		s.polls++
		return true
	}
	now := time.Now()
	if s.start.IsZero() {
		s.start = now
	}
	s.polls++
	gone := now.Sub(s.start)
	return gone < s.limit && (gone > 0 || s.polls <= still(s.limit))
}

// clockEvery is the number of polls for each read of the clock.
const clockEvery = 8

// still bounds the polls during which the clock stands still. Virtual time waits until the program sleeps; that of
// Windows moves in steps of about a millisecond, so a long limit allows more polls, of which each takes aPoll at least.
func still(limit time.Duration) int { return int(min(max(limit/aPoll, 64), 1<<16)) }

const aPoll = 50 * time.Nanosecond

// End ends a long poll, once, and says whether it has found what it was for. It has no effect on others.
func (s *Spin) End(found bool) {
	if s.long != nil {
		s.long.end(s.start, found)
		s.long = nil
	}
}

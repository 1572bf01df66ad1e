package engine

// linger says how long the background goroutine goes on looking for packets before it parks. To park and to be woken takes several
// microseconds of the processor, and the packet that wakes it waits longer still; where packets come every few microseconds, as at the
// passive end of a stream of RDMA WRITEs, most of the time went into that. Looking for packets that do not come takes a core from
// somebody else. So it is done as long as it pays, and tried now and then.
type linger struct {
	on     bool
	until  int64 // ns
	looked int64 // the last look, ns
	looks  int   // since it began: there are clocks that stand still while somebody looks, as in tests
	credit int   // grows when something was found, and shrinks when the time was wasted
	parks  uint  // without looking any longer
}

const (
	lingerTime = 30_000 // ns; about what a sleep and a wake-up take of two processors together
	// Where threads that do come back share the core, such as the very peers, a look costs little of the time that it takes: so there are some at least.
	fewLooks   = 16
	mostLooks  = 100
	mostCredit = 16
	wasted     = 4 // of credit
	trialEvery = 32
)

// found says that a look had a result.
func (l *linger) found() {
	if l.on {
		l.credit = min(l.credit+1, mostCredit)
	}
	l.on = false
}

// more tells, after a look without result, whether to look once more instead of parking. slow is that of patience.
func (l *linger) more(now, slow int64) bool {
	switch {
	case !l.on && l.credit == 0 && l.parks%trialEvery != 0:
		l.parks++
		return false
	case !l.on:
		l.on, l.parks, l.looks, l.until = true, 1, 0, now+lingerTime
	case now-l.looked > timeSlice*max(slow, 1):
		l.on, l.credit = false, 0
		return false
	case now >= l.until && l.looks >= fewLooks || l.looks == mostLooks:
		l.on, l.credit = false, max(l.credit-wasted, 0)
		return false
	}
	l.looked = now
	l.looks++
	return true
}

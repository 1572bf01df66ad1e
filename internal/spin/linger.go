package spin

// A Linger decides how long a goroutine keeps looking for packets before it parks. Parking and waking up takes several
// microseconds of CPU time, and delays the packet that causes the wake-up. If packets arrive every few microseconds, as
// at the passive end of a stream of RDMA WRITEs, looking is cheaper. If none arrives, looking takes a core from other
// threads. So a Linger looks as long as looking succeeds, and tries it now and then otherwise. The zero Linger is ready
// for use. It is not safe for concurrent use.
type Linger struct {
	on     bool
	until  int64 // ns
	looked int64 // time of the last look, ns
	looks  int   // looks since it began; some clocks stand still, as in tests
	credit int   // rises when a look succeeds, falls when looking was in vain
	parks  uint  // parks in a row without looking
}

const (
	lingerTime = 30_000 // ns; about what parking and waking up costs
	// minLooks is the least number of looks: with threads on the same core that yield, a look takes little of lingerTime.
	minLooks   = 16
	maxLooks   = 100
	maxCredit  = 16
	lossInVain = 4  // of credit
	trialEvery = 32 // parks
)

// ParkAtOnce returns a Linger that parks without looking the next trialEvery-1 times.
func ParkAtOnce() Linger { return Linger{parks: 1} }

// Found records a look that found a packet.
func (l *Linger) Found() {
	if l.on {
		l.credit = min(l.credit+1, maxCredit)
	}
	l.on = false
}

// More reports, after an empty look, whether to look once more instead of parking. slowdown is the result of Slowdown.
func (l *Linger) More(now, slowdown int64) bool {
	switch {
	case !l.on && l.credit == 0 && l.parks%trialEvery != 0:
		l.parks++
		return false
	case !l.on:
		l.on, l.parks, l.looks, l.until = true, 1, 0, now+lingerTime
	case now-l.looked > timeSlice*max(slowdown, 1):
		l.on, l.credit = false, 0
		return false
	case now >= l.until && l.looks >= minLooks || l.looks == maxLooks:
		l.on, l.credit = false, max(l.credit-lossInVain, 0)
		return false
	}
	l.looked = now
	l.looks++
	return true
}

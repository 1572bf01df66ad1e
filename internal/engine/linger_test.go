package engine

import "testing"

// lingered plays a goroutine whose next packet comes gap ns after the last one, with looks that take step ns each, and tells how
// many of so many packets found it looking.
func lingered(l *linger, packets int, gap, step int64) (caught int) {
	now := int64(1)
	for range packets {
		l.found()
		due := now + gap
		for now < due && l.more(now, 1) {
			now += step
		}
		if now >= due && l.on {
			caught++
		}
		now = max(now, due)
	}
	return caught
}

// Packets that come soon find the goroutine looking, packets that come late find it parked but for a trial now and then, and it
// learns which of them come.
func TestLinger(t *testing.T) {
	var l linger
	const n = 1000
	if got := lingered(&l, n, lingerTime/2, 1000); got != n {
		t.Errorf("%d of %d packets that come soon find the goroutine looking", got, n)
	}
	looks := 0
	for range n {
		l.found()
		for now := int64(0); l.more(now, 1); now += 1000 {
			looks++
		}
	}
	if most := (n/trialEvery + mostCredit/wasted + 1) * (lingerTime/1000 + 1); looks > most || looks < n/trialEvery {
		t.Errorf("%d looks for %d packets that come late; at most %d are tried, and %d times one must be", looks, n, most, n/trialEvery)
	}
	if got := lingered(&l, n, lingerTime/2, 1000); got < n-trialEvery {
		t.Errorf("%d of %d packets that come soon again find the goroutine looking", got, n)
	}
}

// A clock that stands still does not keep it looking.
func TestLingerClockStandsStill(t *testing.T) {
	var l linger
	looks := 0
	for l.more(5, 1) {
		if looks++; looks > mostLooks {
			t.Fatalf("after %d looks there is one more", looks)
		}
	}
}

// Where others share the core, a look takes as long as they run: it is not the time that counts then, but the looks.
func TestLingerSharedCore(t *testing.T) {
	var l linger
	const n, turn = 1000, lingerTime // of the others
	if got := lingered(&l, n, (fewLooks-1)*turn, turn); got != n {
		t.Errorf("%d of %d packets that come after some turns of others find the goroutine looking", got, n)
	}
	late := linger{credit: 1}
	looks := 0
	for now := int64(0); late.more(now, 1); now += turn {
		looks++
	}
	if looks != fewLooks {
		t.Errorf("%d looks for a packet that does not come, want %d", looks, fewLooks)
	}
}

// Where a look costs a time slice, somebody wants the core who does not give it back.
func TestLingerCrowded(t *testing.T) {
	var l linger
	lingered(&l, 100, lingerTime/2, 1000)
	if l.credit != mostCredit {
		t.Fatalf("credit %d after 100 packets that came soon", l.credit)
	}
	l.found()
	if !l.more(0, 1) || l.more(timeSlice+1, 1) || l.credit != 0 {
		t.Errorf("after a look of %d ns the goroutine goes on looking, or will (credit %d)", timeSlice+1, l.credit)
	}
	var slow linger
	lingered(&slow, 100, lingerTime/2, 1000)
	slow.found()
	if !slow.more(0, 2) || !slow.more(timeSlice+1, 2) {
		t.Error("on a machine that is half as fast such a look is no sign")
	}
}

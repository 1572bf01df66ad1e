package spin

import "testing"

// lingered simulates a goroutine whose next packet arrives gap ns after the last one, with looks of step ns each. It
// returns the number of packets that arrived while the goroutine was looking.
func lingered(l *Linger, packets int, gap, step int64) (caught int) {
	now := int64(1)
	for range packets {
		l.Found()
		due := now + gap
		for now < due && l.More(now, 1) {
			now += step
		}
		if now >= due && l.on {
			caught++
		}
		now = max(now, due)
	}
	return caught
}

// A Linger looks for packets that arrive soon, parks for packets that arrive late except for trials, and adapts.
func TestLinger(t *testing.T) {
	var l Linger
	const n = 1000
	if got := lingered(&l, n, lingerTime/2, 1000); got != n {
		t.Errorf("%d of %d early packets arrived during a look", got, n)
	}
	looks := 0
	for range n {
		l.Found()
		for now := int64(0); l.More(now, 1); now += 1000 {
			looks++
		}
	}
	if most := (n/trialEvery + maxCredit/lossInVain + 1) * (lingerTime/1000 + 1); looks > most || looks < n/trialEvery {
		t.Errorf("%d looks for %d late packets, want at most %d and at least %d", looks, n, most, n/trialEvery)
	}
	if got := lingered(&l, n, lingerTime/2, 1000); got < n-trialEvery {
		t.Errorf("%d of %d early packets arrived during a look after the change", got, n)
	}
}

// A clock that stands still does not make it look for ever.
func TestLingerStoppedClock(t *testing.T) {
	var l Linger
	looks := 0
	for l.More(5, 1) {
		if looks++; looks > maxLooks {
			t.Fatalf("still looking after %d looks", looks)
		}
	}
}

// On a shared core each look takes as long as other threads run: the number of looks counts then, not the time.
func TestLingerSharedCore(t *testing.T) {
	var l Linger
	const n, turn = 1000, lingerTime // of other threads
	if got := lingered(&l, n, (minLooks-1)*turn, turn); got != n {
		t.Errorf("%d of %d packets arrived during a look on a shared core", got, n)
	}
	late := Linger{credit: 1}
	looks := 0
	for now := int64(0); late.More(now, 1); now += turn {
		looks++
	}
	if looks != minLooks {
		t.Errorf("%d looks in vain, want %d", looks, minLooks)
	}
}

// A look that costs a time slice shows a thread that does not yield the core.
func TestLingerCrowded(t *testing.T) {
	var l Linger
	lingered(&l, 100, lingerTime/2, 1000)
	if l.credit != maxCredit {
		t.Fatalf("credit %d after 100 early packets", l.credit)
	}
	l.Found()
	if !l.More(0, 1) || l.More(timeSlice+1, 1) || l.credit != 0 {
		t.Errorf("still looking after a look of %d ns (credit %d)", timeSlice+1, l.credit)
	}
	var slow Linger
	lingered(&slow, 100, lingerTime/2, 1000)
	slow.Found()
	if !slow.More(0, 2) || !slow.More(timeSlice+1, 2) {
		t.Error("on a machine half as fast such a look must not end looking")
	}
}

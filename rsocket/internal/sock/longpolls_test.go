package sock

import (
	"testing"
	"testing/synctest"
	"time"
)

const budget = 10 * time.Microsecond

// waits lets n waits begin. Their long polls end as found says. It returns the number of long polls.
func (p *LongPolls) waits(t *testing.T, n int, found bool) (long int) {
	t.Helper()
	for range n {
		limit, is := p.begin(budget)
		if is {
			long++
			p.end(time.Now(), found)
		}
		if is && limit != longPoll || !is && limit != budget {
			t.Errorf("a poll of %v, long: %v", limit, is)
		}
	}
	return long
}

func TestLongPollsEndWhenTheyAreInVain(t *testing.T) {
	var p LongPolls
	if p.end(time.Now(), true); p.credit != 1 {
		t.Errorf("credit %d after a success", p.credit)
	}
	p = LongPolls{}
	if long := p.waits(t, 10*trialEvery, false); long != 10 {
		t.Errorf("%d of %d waits without an answer polled for long, want one of %d", long, 10*trialEvery, trialEvery)
	}
	p.waits(t, trialEvery, true)
	if long := p.waits(t, 100, true); long != 100 {
		t.Errorf("%d of 100 waits with answers polled for long", long)
	}
	if long := p.waits(t, trialEvery-1, false); long != maxCredit/lossInVain {
		t.Errorf("%d waits polled for long after the answers had ended", long)
	}
	p.waits(t, trialEvery, true)
	if p.end(time.Now().Add(-time.Second), true); p.credit != maxCredit-lossInVain {
		t.Errorf("credit %d after a poll that found something after a second", p.credit)
	}
	p = LongPolls{credit: 1}
	if limit, long := p.begin(longPoll); limit != longPoll || long {
		t.Errorf("a spin budget of %v has become %v, long: %v", longPoll, limit, long)
	}
	p = LongPolls{}
	if limit, long := p.begin(time.Second); limit != time.Second || long {
		t.Errorf("a spin budget of a second has become %v, long: %v", limit, long)
	}
}

// A spin budget that the program or a file has set is exact.
func TestOnlyTheDefaultBudgetIsExtended(t *testing.T) {
	for _, tt := range []struct {
		byDefault bool
		polling   time.Duration
		want      bool
	}{{true, budget, true}, {true, 2 * budget, false}, {false, budget, false}, {true, -1, false}} {
		configured(t, func(d *Defaults) { d.DefaultPolling, d.Polling = tt.byDefault, budget })
		st := NewStream(nil, Options{Polling: tt.polling})
		st.state = streamConnected
		st.longPolls.credit = 1
		st.mu.Lock()
		var p WaitMode
		st.spin(&p)
		if long := p.spin.long != nil; long != tt.want {
			t.Errorf("%+v: polls for %v", tt, p.spin.limit)
		}
		for st.spin(&p) {
		}
		if left := st.longPolls.credit; left != 1 && !tt.want || left != 0 && tt.want {
			t.Errorf("%+v: credit %d after it", tt, left)
		}
		st.mu.Unlock()
	}
}

// Without answers each 32nd wait is a trial, counted from the last one.
func TestTrialsOfLongPolls(t *testing.T) {
	var p LongPolls
	for i := 1; i <= 10*trialEvery; i++ {
		_, long := p.begin(budget)
		if long != (i%trialEvery == 0) {
			t.Fatalf("wait %d polls for long: %v", i, long)
		}
	}
}

// A long poll that took twice its time has found what it was for; one that took longer was in vain. Its credit does not
// fall below 0.
func TestTimeOfALongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, want := range map[time.Duration]int{0: 6, 2 * longPoll: 6, 2*longPoll + 1: 5 - lossInVain} {
			p := LongPolls{credit: 5}
			begin := time.Now()
			time.Sleep(took)
			if p.end(begin, true); p.credit != want {
				t.Errorf("after %v: credit %d, want %d", took, p.credit, want)
			}
			if p.end(begin, false); p.credit != max(want-lossInVain, 0) {
				t.Errorf("after another one in vain: credit %d", p.credit)
			}
		}
	})
}

// Only a poll that is long counts for the credit.
func TestShortPollsHaveNoCredit(t *testing.T) {
	configured(t, func(d *Defaults) { d.DefaultPolling = true })
	for credit, want := range map[int]bool{0: false, 1: true} {
		p := &LongPolls{credit: credit}
		var s Spin
		if s.Begin(budget, p); (s.long == p) != want || (s.limit == longPoll) != want {
			t.Errorf("credit %d: it polls for %v, and counts %v", credit, s.limit, s.long != nil)
		}
		s.Busy()
		if s.End(true); p.credit != 2*credit || s.long != nil {
			t.Errorf("credit %d has become %d", credit, p.credit)
		}
	}
}

// A spin budget of 0 or less is not extended.
func TestNoBudgetIsNotExtended(t *testing.T) {
	configured(t, func(d *Defaults) { d.DefaultPolling = true })
	for _, none := range []time.Duration{0, -1} {
		var s Spin
		if s.Begin(none, &LongPolls{credit: 1}); s.long != nil || s.limit != none {
			t.Errorf("a budget of %v has become %v", none, s.limit)
		}
	}
}

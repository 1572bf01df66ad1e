package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

const tick = 1 << tickShift

func TestWheelFiresOnTimeAndInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var w wheel
		now := int64(rng.Uint64() >> (20 + rng.Uint64()%30))
		w.start(now)
		armed := map[*transport.QP]int64{}
		arm := func(qp *transport.QP, past int64) {
			d := now + int64(rng.Uint64()>>(20+rng.Uint64()%40)) - past
			w.arm(qp, d)
			armed[qp] = d
		}
		qps := make([]transport.QP, 50)
		for i := range qps {
			arm(&qps[i], 2*tick)
		}
		for i := range qps { // some are moved, some cancelled
			switch qp := &qps[i]; rng.IntN(3) {
			case 0:
				arm(qp, 2*tick)
			case 1:
				w.cancel(qp)
				delete(armed, qp)
			}
		}
		for steps := 0; len(armed) > 0; steps++ {
			if steps > 10000 {
				t.Fatalf("round %d: %d timers never fire", round, len(armed))
			}
			next := w.next()
			if next <= now {
				t.Fatalf("round %d: next is %d, not after now %d", round, next, now)
			}
			if rng.IntN(2) == 0 {
				next += int64(rng.Uint64() >> (25 + rng.Uint64()%39)) // the loop comes late
			}
			before := now
			now = next
			w.advance(now, func(qp *transport.QP) {
				d, ok := armed[qp]
				if !ok {
					t.Fatalf("round %d: a cancelled timer fired", round)
				}
				if d > now {
					t.Fatalf("round %d: fired at %d, %d ns early", round, now, d-now)
				}
				delete(armed, qp)
				if rng.IntN(10) == 0 {
					arm(qp, 0)
				}
			})
			for _, d := range armed {
				if d+2*tick <= now && before+tick < now {
					t.Fatalf("round %d: deadline %d missed at %d", round, d, now)
				}
			}
		}
		if w.used != [wheelLevels]uint64{} || w.next() != transport.Never {
			t.Fatalf("round %d: the empty wheel looks used: %v", round, w.used)
		}
	}
}

// An RNR timer of 10 us must not become much more.
func TestWheelIsFineEnoughForRNRTimers(t *testing.T) {
	var w wheel
	w.start(0)
	for d := int64(1); d < 100*tick; d += 337 {
		qp := new(transport.QP)
		w.arm(qp, d)
		if n := w.next(); n < d-63*tick || n > d+tick {
			t.Fatalf("deadline %d: next %d", d, n)
		}
		fired := int64(0)
		for now := w.next(); fired == 0; now = w.next() {
			w.advance(now, func(*transport.QP) { fired = now })
		}
		if late := fired - d; late < 0 || late > tick {
			t.Fatalf("deadline %d fired %d ns late", d, late)
		}
		w = wheel{}
		w.start(0)
	}
}

func BenchmarkWheel(b *testing.B) {
	var w wheel
	w.start(0)
	qps := make([]transport.QP, 10000)
	for i := range qps {
		w.arm(&qps[i], int64(i)*12345)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		qp := &qps[i*7919%len(qps)]
		w.arm(qp, int64(i)*100+67_000_000)
		if i%100 == 0 {
			w.advance(int64(i)*100, func(*transport.QP) {})
		}
	}
}

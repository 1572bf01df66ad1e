package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// A program that polls, arms and sleeps gets an event for what came between the two.
func TestArmCountsMissedCompletions(t *testing.T) {
	cq, up := testCQ(t, 8)
	cq.CountMissed()
	qp := testQP(17)
	events := func(want int, when string) {
		t.Helper()
		if up.completions != want {
			t.Fatalf("%d events %s, want %d", up.completions, when, want)
		}
	}
	arm := func(solicited bool) {
		t.Helper()
		if err := cq.Arm(solicited); err != nil {
			t.Fatal(err)
		}
	}
	arm(false)
	events(0, "for an empty CQ")
	cq.Push(recvCQE(qp, 1))
	events(1, "for one completion")
	arm(false)
	events(1, "although the completion has had its event")
	pollIDs(t, cq, 8)
	cq.Push(recvCQE(qp, 2))
	events(2, "after the second request")
	pollIDs(t, cq, 8)
	cq.Push(recvCQE(qp, 3))
	events(2, "without a request")
	arm(true)
	events(2, "for a completion that is not solicited")
	arm(false)
	events(3, "after a request that came late")
	cq.Push(recvCQE(qp, 4))
	arm(false)
	events(4, "for a completion behind one that has had its event")
	cq.Push(recvCQE(qp, 5))
	pollIDs(t, cq, 8)
	arm(false)
	events(4, "for completions that were polled")
}

// Wake raises the event of a request, once.
func TestWake(t *testing.T) {
	for _, solicited := range []bool{false, true} {
		cq, up := testCQ(t, 8)
		cq.Wake()
		if err := cq.Arm(solicited); err != nil || up.completions != 0 {
			t.Fatalf("%d events for an empty CQ, %v", up.completions, err)
		}
		cq.Wake()
		cq.Wake()
		cq.Push(recvCQE(testQP(17), 1))
		if up.completions != 1 {
			t.Errorf("%d events for one request", up.completions)
		}
	}
}

// Arm raises an event exactly if there is a matching completion, not polled, that came after the last event.
func TestArmAgreesWithAModel(t *testing.T) {
	type entry struct{ qp, wakes, seen bool } // qp: of the first of two
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		cq, up := testCQ(t, 16)
		cq.CountMissed()
		qps := []*transport.QP{testQP(17), testQP(18)}
		var model []entry
		events, armed := 0, disarmed
		raise := func() {
			events++
			armed = disarmed
			for i := range model {
				model[i].seen = true
			}
		}
		for step := range 400 {
			switch r.IntN(6) {
			case 0, 1:
				if len(model) == 16 {
					break
				}
				n := r.IntN(2)
				e := recvCQE(qps[n], 0)
				e.Solicited = r.IntN(3) == 0
				if err := qps[n].RQ.Post(1, nil); err != nil {
					break // the test's QPs have few receives
				}
				model = append(model, entry{qp: n == 0, wakes: e.Solicited})
				cq.Push(e)
				if armed == armedNext || armed == armedSolicited && e.Solicited {
					raise()
				}
			case 2:
				n := r.IntN(4)
				pollIDs(t, cq, n)
				model = slices.Delete(model, 0, min(n, len(model)))
			case 3, 4:
				solicited := r.IntN(2) == 0
				if !solicited {
					armed = armedNext
				} else if armed == disarmed {
					armed = armedSolicited
				}
				if err := cq.Arm(solicited); err != nil {
					t.Fatal(err)
				}
				if slices.ContainsFunc(model, func(e entry) bool { return !e.seen && (armed == armedNext || e.wakes) }) {
					raise()
				}
			case 5:
				if r.IntN(4) == 0 {
					cq.purge(qps[0])
					model = slices.DeleteFunc(model, func(e entry) bool { return e.qp })
				} else if err := cq.Resize(max(1, len(model)) + r.IntN(16)); err != nil {
					t.Fatal(err)
				}
				if cq.Cap() < 16 { // room for the model
					if err := cq.Resize(16); err != nil {
						t.Fatal(err)
					}
				}
			}
			if up.completions != events {
				t.Fatalf("seed %d, step %d: %d events, want %d", seed, step, up.completions, events)
			}
		}
	}
}

package transport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/psn"
)

// age lets n PSNs of messages pass.
func (s *stage) age(n int) {
	for ; n > 0; n -= 1 << 12 {
		s.qp.resp.step(min(n, 1<<12), true)
	}
}

// answers returns the replies to a request.
func (s *stage) answers(t *testing.T, line string) string {
	t.Helper()
	s.log = nil
	if err := s.doLine(line); err != nil {
		t.Fatal(err)
	}
	return strings.Join(s.log, "\n")
}

// A duplicate is acknowledged up to the newest PSN however many PSNs ago the last READ or atomic was: a READ that is
// 2^23 PSNs old would look like one that follows, and the acknowledgement would name a PSN that the peer does not
// expect.
func TestDuplicatesLongAfterAnAtomic(t *testing.T) {
	for _, request := range []string{"FETCH_ADD psn=100 at=A+8 add=1", "READ psn=100 at=A+0/4"} {
		for _, n := range []int{
			1, 1 << 20, 6 << 20, 7 << 20, 1<<23 - 2, 1 << 23, 1<<23 + 1, 12 << 20, 1<<24 - 1, 1 << 24, 3<<23 + 5,
		} {
			s := play(t, "qp rc", "region A", "in "+request)
			s.age(n)
			last := psn.Add(s.qp.resp.epsn, -1)
			got := s.answers(t, fmt.Sprintf("in SEND_ONLY psn=%d ackreq data=x", last))
			if want := "> ACKNOWLEDGE psn=" + psnText(last) + " ack"; !strings.HasPrefix(got, want) {
				t.Errorf("%s, %d PSNs later: %q, want %q", request, n, got, want)
			}
		}
	}
}

// A duplicate of an atomic gets the result of that atomic, not that of an older one which had the same PSN.
func TestDuplicateOfAnAtomicWhosePSNWasUsedBefore(t *testing.T) {
	s := play(t, "qp rc", "region A", "fill A 0", "in FETCH_ADD psn=100 at=A+8 add=1")
	s.age(1<<24 - 1)
	first := s.answers(t, "in FETCH_ADD psn=100 at=A+8 add=1")
	if again := s.answers(t, "in FETCH_ADD psn=100 at=A+8 add=1"); first == "" || again != first {
		t.Errorf("%q, and for the duplicate %q", first, again)
	}
}

// A READ of 2^23 PSNs, the longest there is, does not become newer than the messages that follow it.
func TestDuplicateAfterTheLongestRead(t *testing.T) {
	s := play(t, "qp rc", "region A")
	r := &s.qp.resp
	res := r.newResource()
	*res = resource{kind: resRead, answered: true, first: r.epsn, last: psn.Add(r.epsn, 1<<23-1)}
	r.step(1<<23, true)
	r.queue(res)
	res.pending = false
	r.todo = r.head
	s.age(2)
	last := psn.Add(r.epsn, -1)
	got := s.answers(t, fmt.Sprintf("in SEND_ONLY psn=%d ackreq data=x", last))
	if want := "> ACKNOWLEDGE psn=" + psnText(last) + " ack"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

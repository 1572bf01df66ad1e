package transport

import (
	"strings"
	"testing"
)

// A peer whose right to READ the program has taken away, from the QP, does not get memory any more by a READ that it
// repeats: the bytes would be those of now.
func TestRepeatedReadWithoutTheRight(t *testing.T) {
	s := play(t, "qp rc", "region A", "fill A 0", "in READ psn=100 at=A+0/16")
	if err := s.doLine("fill A s"); err != nil { // after the answer to the first one
		t.Fatal(err)
	}
	if err := s.qp.Modify(0, &Attr{Access: accessWrite}, MaskAccess); err != nil {
		t.Fatal(err)
	}
	if got := s.answers(t, "in READ psn=100 at=A+0/16"); got != "" {
		t.Errorf("a peer without the right to READ gets %s", got)
	}
	if s.qp.Counters.BadDuplicate != 1 || s.qp.State() != RTS {
		t.Errorf("%d bad duplicates, state %v", s.qp.Counters.BadDuplicate, s.qp.State())
	}
}

// The rest of a READ that is being answered is not sent either.
func TestReadThatLosesTheRight(t *testing.T) {
	s := play(t, "qp rc", "region A", "fill A 0", "in READ psn=100 at=A+0/16", "in READ psn=101 at=A+0/16")
	for i := s.qp.resp.oldest(); i != s.qp.resp.head; i++ { // as if the link had no room
		res := s.qp.resp.at(i)
		res.pending, res.next, res.at, res.left, res.answered = true, res.first, res.addr, res.size, i == s.qp.resp.oldest()
	}
	s.qp.resp.todo = s.qp.resp.oldest()
	if err := s.qp.Modify(0, &Attr{Access: accessWrite}, MaskAccess); err != nil {
		t.Fatal(err)
	}
	got := s.answers(t, "in SEND_ONLY psn=200 ackreq data=x")
	if want := "NAK remote access"; strings.Contains(got, "RESPONSE") || !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s.qp.State() != Err {
		t.Errorf("state %v", s.qp.State())
	}
}

package explain

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// text prints steps in their order.
type text struct {
	w     io.Writer
	last  *step
	first map[netip.Addr]uint32 // for connections within an address: the QP to which the first message went
	left  map[netip.Addr]string // the same: the process of the left column
	draws bool                  // keep steps for a picture
	drawn []*step               // at most svgMost
}

// print prints a step.
func (t *text) print(s *step) {
	left, right := pair(s)
	s.back = s.src != left || t.answers(s)
	if t.last == nil || !samePair(s, t.last) {
		fmt.Fprintf(t.w, "\n%12s  %s  <->  %s\n", "seconds", s.name(left, false), s.name(right, true))
	}
	t.last = s
	arrow := "--->"
	if s.back {
		arrow = "<---"
	}
	fmt.Fprintf(t.w, "%12.6f  %s %s  %s\n", s.at.Seconds(), arrow, s.target(), s.line())
	for _, n := range s.notes {
		fmt.Fprintf(t.w, "%12s       ! %s\n", "", n)
	}
	if t.draws && len(t.drawn) < svgMost {
		t.drawn = append(t.drawn, s)
	}
}

// answers reports whether a step between two processes or QPs on one address is in the reverse direction: not from the
// process that came first, or, if the capture names no two processes, to the QP that did not come first.
func (t *text) answers(s *step) bool {
	if s.src != s.dst {
		return false
	}
	if e := s.ends; e != nil && e.from != e.to {
		left, ok := t.left[s.src]
		if !ok {
			if t.left == nil || len(t.left) > mostFlows {
				t.left = make(map[netip.Addr]string)
			}
			t.left[s.src], left = e.from, e.from
		}
		return left != e.from
	}
	if s.qpn == wire.GSIQPN && s.ports == "" {
		return false
	}
	qpn, ok := t.first[s.src]
	if !ok {
		if t.first == nil || len(t.first) > mostFlows {
			t.first = make(map[netip.Addr]uint32)
		}
		t.first[s.src] = s.qpn
		return false
	}
	return qpn != s.qpn
}

package rdmacm

import (
	"slices"
	"testing"
)

// TestIDSet checks sets of no, one and several IDs.
func TestIDSet(t *testing.T) {
	var s idSet
	a, b, c := &ID{}, &ID{}, &ID{}
	is := func(want ...*ID) {
		t.Helper()
		got := s.all()
		same := len(got) == len(want)
		for _, id := range want {
			same = same && slices.Contains(got, id)
		}
		if !same {
			t.Errorf("%d IDs, want %d", len(got), len(want))
		}
	}
	is()
	s.remove(a)
	s.add(a)
	s.add(a)
	is(a)
	s.add(b)
	s.add(c)
	is(a, b, c)
	s.remove(a)
	is(b, c)
	s.add(a)
	s.add(b)
	is(a, b, c)
	s.remove(b)
	s.remove(c)
	s.remove(a)
	is()
}

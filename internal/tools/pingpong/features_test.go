package pingpong

import (
	"strings"
	"testing"
)

func TestStopwatch(t *testing.T) {
	var s stopwatch
	var out strings.Builder
	s.note(1000)
	if s.report(&out); out.Len() != 0 {
		t.Errorf("of one receive: %s", out.String())
	}
	for _, now := range []uint64{1400, 1500, 2500} {
		s.note(now)
	}
	s.report(&out)
	const want = "Max receive completion clock cycles = 1000\nMin receive completion clock cycles = 100\n" +
		"Average receive completion clock cycles = 500.000000\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}

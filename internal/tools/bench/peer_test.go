package bench

import "testing"

func TestParseUCX(t *testing.T) {
	const header = "| Stage | # iterations | 50.0%ile | average | overall |\n"
	for out, want := range map[string]ucxFigures{
		header + "          300000      0.165     0.177     0.250       43.06      43.06     5643397     4000000\n": {
			0.25e-6, 4e6},
		"Final:    3000  0.1  0.2  0.5  1.0  1.0  7  8": {0.5e-6, 8},
	} {
		if got, err := parseUCX([]byte(out)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", out, got, err, want)
		}
	}
	for _, out := range []string{"", "1 2 3", "1 2 3 x 5 6 7 8", "1 2 3 4 5 6 7 x", "1 2 3 4 5 6 7 8 9"} {
		if got, err := parseUCX([]byte(out)); err == nil {
			t.Errorf("%q: %+v, want an error", out, got)
		}
	}
}

// Without the program --peer is an error, and without --peer the program is not needed.
func TestNoUCX(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := peer(&config{peer: "ucx"}); err == nil {
		t.Error("no error without ucx_perftest")
	}
	if all, err := peer(&config{}); err != nil || len(all) > 0 {
		t.Errorf("without --peer: %v, %v", all, err)
	}
}

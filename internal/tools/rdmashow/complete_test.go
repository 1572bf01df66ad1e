package rdmashow

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestProposals: a shell completes objects, their kinds, devices, filters and the values that the objects have.
func TestProposals(t *testing.T) {
	const filters = "rqpn pid sq-psn rq-psn pdn src-port dst-port type path-mig-state state src-addr dst-addr"
	for _, c := range []struct{ line, want string }{
		{"", "dev link resource statistic monitor"},
		{"dev", "show list"},
		{"d s", "rxe0 siw0"},
		{"dev show rxe0", ""},
		{"link list", "rxe0/1 siw0/1"},
		{"res", "show list"},
		{"resource show", "qp cm_id cq mr pd ctx srq rxe0 siw0"},
		{"res show rxe0", ""},
		{"res show qp", "link lqpn " + filters},
		{"res show qp link", "rxe0/1 siw0/1"},
		{"res show qp link rxe0/1 lqpn 17", filters},
		{"res show qp type", "GSI RC UD"},
		{"res show pd dev", "rxe0 siw0"},
		{"res show mr lkey", "0x22c 0x347 0x414 0x5cf 0x628 0x7fb 0x856 0x9b6 0xa57 0xb68"},
		{"res show srq lqpn", "18 19 20"},
		{"res show qp nonsense", ""},
		{"stat", "show list qp"},
		{"stat show", "link"},
		{"stat show link", "rxe0/1 siw0/1"},
		{"stat qp show", "link cntn lqpn pid qp-type"},
		{"monitor", ""},
		{"nonsense", ""},
	} {
		got := strings.Join(proposals(linux(), strings.Fields(c.line)), " ")
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	if got := proposals(&fakeHost{err: errors.New("no devices")}, []string{"dev", "show"}); got != nil {
		t.Errorf("without devices: %q", got)
	}
}

// TestProposalsAreCommands: the parser takes each word that is proposed.
func TestProposalsAreCommands(t *testing.T) {
	var walk func(words []string)
	walk = func(words []string) {
		for _, w := range proposals(linux(), words) {
			if w == "monitor" { // does not end
				continue
			}
			line := append(slices.Clone(words), w)
			_, _, errs := rdma(linux(), strings.Join(line, " "))
			if errs != "" && !strings.Contains(errs, "needs a value") {
				t.Errorf("%q: %s", line, errs)
			}
			if len(line) < 5 {
				walk(line)
			}
		}
	}
	walk(nil)
}

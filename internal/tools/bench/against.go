package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/verbena-rdma/verbena/internal/tools/term"
)

// regression is how much worse a ratio may be than before.
const regression = 0.2

// gain compares the ratio with that of an earlier run: 0.1 means better by a tenth, -0.3 worse by three. ok is false if there is none.
func (r *result) gain() (v float64, ok bool) {
	switch {
	case r.Before <= 0 || r.Ratio <= 0:
		return 0, false
	case r.AtMost:
		return r.Before/r.Ratio - 1, true
	}
	return r.Ratio/r.Before - 1, true
}

// regressed tells whether the ratio is worse than before by more than it may be.
func (r *result) regressed() bool {
	v, ok := r.gain()
	return ok && v < -regression
}

// since is the comparison as text.
func (r *result) since(p *term.Printer) string {
	v, ok := r.gain()
	switch {
	case !ok:
		return ""
	case r.regressed():
		return p.Red(fmt.Sprintf("%.0f %% worse", -100*v))
	case v > regression:
		return p.Green(fmt.Sprintf("%.0f %% better", 100*v))
	}
	return p.Dim(fmt.Sprintf("%+.0f %%", 100*v))
}

// compare looks earlier ratios up in a file that --json or compare has written. What is not in it is added; it need not be there.
func compare(file string, results []result) error {
	var earlier []result
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &earlier)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("comparing with %s: %w", file, err)
	}
	before := map[string]float64{}
	for _, r := range earlier {
		before[r.Name] = r.Ratio
	}
	known := len(earlier)
	for i := range results {
		r := &results[i]
		if v, ok := before[r.Name]; ok {
			r.Before = v
		} else {
			earlier = append(earlier, *r)
		}
	}
	if len(earlier) == known {
		return nil
	}
	if text, err = json.MarshalIndent(earlier, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}

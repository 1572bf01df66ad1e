package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/verbena-rdma/verbena/internal/tools/term"
)

// regression is the fraction by which a ratio may be worse than before.
const regression = 0.2

// gain compares the ratio with that of an earlier run: 0.1 is 10 % better, -0.3 is 30 % worse. ok is false
// if there is no earlier ratio.
func (r *result) gain() (v float64, ok bool) {
	switch {
	case r.Before <= 0 || r.Ratio <= 0:
		return 0, false
	case r.AtMost:
		return r.Before/r.Ratio - 1, true
	}
	return r.Ratio/r.Before - 1, true
}

// regressed reports whether the ratio is worse than before by more than regression.
func (r *result) regressed() bool {
	v, ok := r.gain()
	return ok && v < -regression
}

// since returns the comparison with the earlier run as text.
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

// compare reads earlier ratios from a file that --json or compare wrote, and appends the results that the
// file does not have. The file need not exist.
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

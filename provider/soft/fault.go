package soft

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/verbs"
)

const envFault = "VERBENA_FAULT"

// withFaults puts the faults that VERBENA_FAULT asks for before a link, or in its absence nothing. any tells whether there are some.
func withFaults(l link.Link) (_ link.Link, any bool, err error) {
	text := os.Getenv(envFault)
	if text == "" {
		return l, false, nil
	}
	cfg, err := parseFaults(text)
	if err != nil {
		return nil, false, err
	}
	return fault.Wrap(l, cfg), true, nil
}

// parseFaults reads a list such as loss=0.01,delay=2ms,seed=7.
func parseFaults(text string) (cfg fault.Config, err error) {
	f := &cfg.Send
	chances := map[string]*float64{"loss": &f.Loss, "duplicate": &f.Duplicate, "reorder": &f.Reorder, "corrupt": &f.Corrupt}
	times := map[string]*time.Duration{"delay": &f.Delay, "jitter": &f.Jitter}
	cfg.Seed = 1
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		bad := func(allowed string) error {
			return fail(verbs.EINVAL, "%s: %s=%s: %s", envFault, name, value, allowed)
		}
		switch chance, time := chances[name], times[name]; {
		case chance != nil:
			if *chance, err = strconv.ParseFloat(value, 64); err != nil || *chance < 0 || *chance >= 1 {
				return cfg, bad("a probability from 0 to less than 1 is needed, such as 0.01")
			}
		case time != nil:
			if *time, err = parseDelay(value); err != nil {
				return cfg, bad("a time from 0 to 1m is needed, such as 2ms")
			}
		case name == "seed":
			if cfg.Seed, err = strconv.ParseUint(value, 0, 64); err != nil {
				return cfg, bad("a number is needed")
			}
		default:
			return cfg, fail(verbs.EINVAL, "%s: %q is none of loss, duplicate, reorder, corrupt, delay, jitter and seed, each with =VALUE", envFault, name)
		}
	}
	return cfg, nil
}

func parseDelay(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > time.Minute) {
		err = strconv.ErrRange
	}
	return d, err
}

package bench

import "github.com/verbena-rdma/verbena/internal/tools/endpoint"

// loss is what is left of the throughput of the wire when one packet in a hundred is lost, each way. Faults are those of a device from its
// opening on, so each measurement has processes of its own.
func loss(c *config) ([]result, error) {
	r := result{Name: "loss", What: "udp: RC WRITE of 1 MiB, 1 % of the packets lost", BaseOf: "none lost", Unit: "bytes/s", Target: 0.3}
	with := func(faults string) func() (float64, error) {
		return func() (v float64, err error) {
			err = withEnv("VERBENA_FAULT", faults, func() error {
				return pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: large}, func(p *endpoint.Pair) error {
					v, err = writes(c, p, large)
					return err
				})
			})
			return v, err
		}
	}
	err := overUDP(func() error { return r.rounds(c.rounds, with("loss=0.01"), with("")) })
	return []result{r}, err
}

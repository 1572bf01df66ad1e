package bench

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
)

// processorTime measures the processor time of both processes, user and system, per message, beside that of TCP. It
// also measures that of a connected pair that is idle.
func processorTime(c *config) (all []result, err error) {
	near, err := ofLink(c, "shm")
	if err != nil {
		return nil, err
	}
	err = overUDP(func() error {
		all, err = ofLink(c, "udp")
		return err
	})
	return append(near, all...), err
}

func ofLink(c *config, link string) (all []result, err error) {
	err = pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 2 * large}, func(p *endpoint.Pair) error {
		for _, m := range []struct {
			name, what string
			bytes      int
			target     float64
			rate       func() (float64, error) // messages per second
		}{
			{"-cpu-write", ": RC WRITE of 1 MiB, processor time", large, 1, func() (float64, error) {
				v, err := writes(c, p, large)
				return v / large, err
			}},
			{"-cpu-send", ": RC SEND of 8 bytes, 64 outstanding, processor time", small, 1, func() (float64, error) {
				return sends(p, p.PumpBatches, c.each, sendWindow)
			}},
		} {
			conn, err := p.DialTCP(m.bytes, false)
			if err != nil {
				return err
			}
			defer conn.Close()
			r := result{Name: link + m.name, What: link + m.what, BaseOf: "TCP", Unit: "s", Target: m.target, AtMost: true}
			tcp := func() (float64, error) { return endpoint.TCPRate(c.each, conn) }
			err = r.rounds(c, func() (float64, error) { return perMessage(p, m.rate) },
				func() (float64, error) { return perMessage(p, tcp) })
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		idle := result{Name: link + "-cpu-idle", What: link + ": a connected pair that is idle, processor time",
			Unit: "cores", Base: idleShare, Target: 1, AtMost: true}
		idle.RDMA, err = idleCores(p)
		idle.Ratio = idle.RDMA / idle.Base
		idle.judge()
		all = append(all, idle)
		return err
	})
	return all, err
}

// perMessage returns the processor time of both processes for one of the messages that rate sends.
func perMessage(p *endpoint.Pair, rate func() (float64, error)) (seconds float64, err error) {
	before, err := bothCPU(p)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	v, err := rate()
	if err != nil {
		return 0, err
	}
	messages := v * time.Since(begin).Seconds()
	after, err := bothCPU(p)
	return (after - before).Seconds() / messages, err
}

// bothCPU returns the processor time of both processes.
func bothCPU(p *endpoint.Pair) (sum time.Duration, err error) {
	if err := p.Call("CPU", endpoint.None{}, &sum); err != nil {
		return 0, err
	}
	own, err := endpoint.CPU()
	return sum + own, err
}

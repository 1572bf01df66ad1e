package bench

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	large       = 1 << 20
	small       = 8
	writeWindow = 8  // WRITEs in flight
	sendWindow  = 64 // SENDs in flight; also the queue depth
)

// pair runs do with both processes connected.
func pair(o endpoint.Options, do func(*endpoint.Pair) error) (err error) {
	return pairBy((*endpoint.Pair).Connect, o, do)
}

// pairBy is pair with another way to connect.
func pairBy(
	connect func(*endpoint.Pair, endpoint.Options) error, o endpoint.Options, do func(*endpoint.Pair) error,
) (err error) {
	p, err := endpoint.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := connect(p, o); err != nil {
		return err
	}
	return do(p)
}

// throughput, latency and rate measure the wire, over UDP: two processes of one host would otherwise use
// shared memory.
func throughput(c *config) ([]result, error) {
	r := result{Name: "throughput", What: "udp: RC WRITE of 1 MiB, throughput", BaseOf: "TCP", Unit: "bytes/s", Target: 1}
	err := overUDP(func() error {
		return pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: large}, func(p *endpoint.Pair) error {
			return r.throughput(c, p)
		})
	})
	return []result{r}, err
}

// throughput compares WRITEs of 1 MiB with a TCP connection.
func (r *result) throughput(c *config, p *endpoint.Pair) error {
	tcp, err := p.DialTCP(large, false)
	if err != nil {
		return err
	}
	defer tcp.Close()
	return r.rounds(c, func() (float64, error) { return writes(c, p, large) }, func() (float64, error) {
		v, err := endpoint.TCPRate(c.each, tcp)
		return v * large, err
	})
}

func latency(c *config) ([]result, error) {
	r := result{Name: "latency", What: "udp: RC SEND of 8 bytes, round trip", BaseOf: "TCP", Unit: "s", Target: 1.3,
		AtMost: true}
	err := overUDP(func() error {
		return pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
			tcp, err := p.DialTCP(small, true)
			if err != nil {
				return err
			}
			defer tcp.Close()
			return r.roundTrips(c, p, tcp)
		})
	})
	return []result{r}, err
}

// roundTrips compares an 8-byte ping-pong with one over a TCP connection.
func (r *result) roundTrips(c *config, p *endpoint.Pair, tcp *duo.TCPConn) error {
	return r.rounds(c, func() (float64, error) {
		var d time.Duration
		err := p.Serving(endpoint.Serving{Mode: endpoint.Pong, Bytes: small}, func() (err error) {
			d, err = p.PingPong(c.each, small)
			return err
		})
		return d.Seconds(), err
	}, func() (float64, error) {
		d, err := endpoint.TCPLatency(c.each, tcp)
		return d.Seconds(), err
	})
}

// rate measures messages per core; each of the two processes uses one core.
func rate(c *config) ([]result, error) {
	const cores = 2
	r := result{Name: "rate", What: "udp: RC SEND of 8 bytes, 64 outstanding, per core", Unit: "messages/s", Base: 300e3,
		Target: 1}
	err := overUDP(func() error {
		return pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
			return r.constant(c, func() (float64, error) {
				v, err := sends(p, p.PumpBatches, c.each, sendWindow)
				return v / cores, err
			})
		})
	})
	return []result{r}, err
}

type pumper func(each time.Duration, window int, wr verbs.SendWR) (float64, error)

// sends returns the rate of 8-byte SENDs.
func sends(p *endpoint.Pair, pump pumper, each time.Duration, window int) (v float64, err error) {
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, small)}
	err = p.Serving(endpoint.Serving{Mode: endpoint.Sink, Bytes: small}, func() error {
		v, err = pump(each, window, wr)
		return err
	})
	return v, err
}

// loss measures the throughput of the wire with 1 % and 5 % packet loss in each direction, relative to none. A device
// reads its fault settings when it is opened, so each measurement starts its own processes.
func loss(c *config) (all []result, err error) {
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
	for _, l := range []struct {
		name, percent, faults string
		target                float64
	}{{"loss", "1 %", "loss=0.01", 0.5}, {"loss-5", "5 %", "loss=0.05", 0.2}} {
		r := result{Name: l.name, What: "udp: RC WRITE of 1 MiB, " + l.percent + " of the packets lost", BaseOf: "none lost",
			Unit: "bytes/s", Target: l.target}
		if err := overUDP(func() error { return r.rounds(c, with(l.faults), with("")) }); err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

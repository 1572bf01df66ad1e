package bench

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	large       = 1 << 20
	small       = 8
	writeWindow = 8  // WRITEs in flight
	sendWindow  = 64 // SENDs in flight; also the depth of queues
)

// pair runs do with both processes connected.
func pair(o endpoint.Options, do func(*endpoint.Pair) error) (err error) {
	p, err := endpoint.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Connect(o); err != nil {
		return err
	}
	return do(p)
}

func throughput(c *config) ([]result, error) {
	r := result{Name: "throughput", What: "RC WRITE of 1 MiB, throughput", BaseOf: "TCP", Unit: "bytes/s", Target: 0.5}
	err := pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: large}, func(p *endpoint.Pair) error {
		tcp, err := p.DialTCP(large, false)
		if err != nil {
			return err
		}
		defer tcp.Close()
		return r.rounds(c.rounds, func() (v float64, err error) {
			err = p.Serving(endpoint.Serving{Mode: endpoint.Spin}, func() error {
				v, err = p.Pump(c.each, writeWindow, p.Remote(verbs.WRRDMAWrite, 0, 0, large))
				return err
			})
			return v * large, err
		}, func() (float64, error) {
			v, err := endpoint.TCPRate(c.each, tcp)
			return v * large, err
		})
	})
	return []result{r}, err
}

func latency(c *config) ([]result, error) {
	r := result{Name: "latency", What: "RC SEND of 8 bytes, round trip", BaseOf: "TCP", Unit: "s", Target: 2.5, AtMost: true}
	err := pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
		tcp, err := p.DialTCP(small, true)
		if err != nil {
			return err
		}
		defer tcp.Close()
		return r.rounds(c.rounds, func() (float64, error) {
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
	})
	return []result{r}, err
}

// rate has no target; it shows what posting and sending in batches brings.
func rate(c *config) ([]result, error) {
	r := result{Name: "rate", What: "RC SEND of 8 bytes, 64 outstanding", BaseOf: "1 outstanding", Unit: "messages/s"}
	err := pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
		return r.rounds(c.rounds,
			func() (float64, error) { return sends(p, p.PumpBatches, c.each, sendWindow) },
			func() (float64, error) { return sends(p, p.PumpBatches, c.each, 1) })
	})
	return []result{r}, err
}

type pumper func(each time.Duration, window int, wr verbs.SendWR) (float64, error)

// sends is the rate of 8-byte SENDs.
func sends(p *endpoint.Pair, pump pumper, each time.Duration, window int) (v float64, err error) {
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, small)}
	err = p.Serving(endpoint.Serving{Mode: endpoint.Sink, Bytes: small}, func() error {
		v, err = pump(each, window, wr)
		return err
	})
	return v, err
}

// scale compares the same program over many QPs and over one, and tells what they take. Each round has processes of its own.
func scale(c *config) ([]result, error) {
	qps := term.Count(uint64(c.qps)) + " RC QPs"
	size := result{Name: "size", What: qps + ", resident memory", Unit: "bytes", Base: 200e6, Target: 1, AtMost: true}
	many := result{Name: "scale", What: qps + ", SEND of 8 bytes", BaseOf: "1 QP", Unit: "messages/s", Target: 0.5}
	err := many.rounds(c.rounds, func() (v float64, err error) {
		err = pair(endpoint.Options{QPs: c.qps, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
			if v, err = sends(p, p.Pump, c.each, sendWindow); err != nil {
				return err
			}
			var rss uint64
			err := p.Call("RSS", endpoint.None{}, &rss)
			size.RDMA = max(size.RDMA, float64(rss))
			return err
		})
		return v, err
	}, func() (v float64, err error) {
		err = pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
			v, err = sends(p, p.Pump, c.each, sendWindow)
			return err
		})
		return v, err
	})
	size.Ratio = size.RDMA / size.Base
	size.judge()
	return []result{size, many}, err
}

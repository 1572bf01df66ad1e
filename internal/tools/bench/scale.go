package bench

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
)

// scale measures many QPs: for each power of ten up to --qps, and for --qps itself, the memory of the
// passive process, and the message rate of a program that uses the QPs in turn relative to that with one
// QP. Each round starts its own processes.
func scale(c *config) ([]result, error) {
	var all []result
	for n := 10; ; n *= 10 {
		n = min(n, c.qps)
		r, err := scaleTo(c, n)
		if err != nil || n == c.qps {
			return append(all, r...), err
		}
		all = append(all, r...)
	}
}

func scaleTo(c *config, n int) ([]result, error) {
	qps := term.Count(uint64(n)) + " RC QPs"
	size := result{Name: fmt.Sprint("size-", n), What: qps + ", resident memory", Unit: "bytes", Base: 200e6, Target: 1,
		AtMost: true}
	many := result{Name: fmt.Sprint("scale-", n), What: qps + ", SEND of 8 bytes", BaseOf: "1 QP", Unit: "messages/s",
		Target: 0.5}
	err := many.rounds(c, func() (v float64, err error) {
		err = pair(endpoint.Options{QPs: n, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
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

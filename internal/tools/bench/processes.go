package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
)

const (
	mostProcesses  = 8
	processesBytes = 64 << 10
)

// processes starts 2, 4, 8 ... processes that share one device with this process and WRITE to it, and
// compares their total throughput with that of one.
func processes(c *config) (results []result, err error) {
	crowd, err := gather(mostProcesses)
	defer func() { err = errors.Join(err, crowd.close()) }()
	if err != nil {
		return nil, err
	}
	for n := 2; n <= mostProcesses; n *= 2 {
		r := result{
			Name: fmt.Sprintf("processes%d", n), What: fmt.Sprintf("%d processes share a device, WRITE of 64 KiB", n),
			BaseOf: "1 process",
			Unit:   "bytes/s", Target: 1,
		}
		err := r.rounds(c,
			func() (float64, error) { return crowd[:n].write(c.each) },
			func() (float64, error) { return crowd[:1].write(c.each) })
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// crowd is a set of processes that share a device.
type crowd []*endpoint.Pair

// gather starts n processes, each connected to this one.
func gather(n int) (all crowd, err error) {
	for len(all) < n {
		var p *endpoint.Pair
		if len(all) == 0 {
			p, err = endpoint.Start()
		} else {
			p, err = endpoint.StartAt(all[0].Here)
		}
		if err != nil {
			return all, err
		}
		all = append(all, p)
		if err := p.Connect(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: processesBytes}); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (all crowd) close() error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// write returns the total number of bytes per second that all processes write.
func (all crowd) write(each time.Duration) (total float64, err error) {
	rates, errs := make([]float64, len(all)), make(chan error, len(all))
	for i, p := range all {
		peer, err := p.Hello()
		if err != nil {
			return 0, err
		}
		go func() {
			errs <- p.Call("Pump", endpoint.Pumping{Peer: peer, Bytes: processesBytes, Window: writeWindow, Each: each},
				&rates[i])
		}()
	}
	for range all {
		err = errors.Join(err, <-errs)
	}
	for _, r := range rates {
		total += r * processesBytes
	}
	return total, err
}

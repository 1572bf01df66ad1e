package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/verbs"
)

// overUDP runs do with shared memory disabled in this process and its children.
func overUDP(do func() error) error { return withEnv("VERBENA_SHM", "0", do) }

// withEnv runs do with an environment variable set in this process and its children.
func withEnv(name, value string, do func() error) (err error) {
	old, had := os.LookupEnv(name)
	if err := os.Setenv(name, value); err != nil {
		return err
	}
	defer func() {
		if had {
			err = errors.Join(err, os.Setenv(name, old))
		} else {
			err = errors.Join(err, os.Unsetenv(name))
		}
	}()
	return do()
}

// near measures two processes of one host over shared memory.
func near(c *config) ([]result, error) {
	rtt := result{Name: "shm-latency", What: "shm: RC SEND of 8 bytes, round trip", BaseOf: "TCP", Unit: "s",
		Target: 0.2, AtMost: true}
	rate := result{Name: "shm-rate", What: "shm: RC SEND of 8 bytes, 64 outstanding", Unit: "messages/s", Base: 4e6,
		Target: 1}
	var all []result
	err := pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 2 * large}, func(p *endpoint.Pair) error {
		tcp, err := p.DialTCP(small, true)
		if err != nil {
			return err
		}
		defer tcp.Close()
		if err := rtt.roundTrips(c, p, tcp); err != nil {
			return err
		}
		err = rate.constant(c, func() (float64, error) { return sends(p, p.PumpBatches, c.each, sendWindow) })
		if err != nil {
			return err
		}
		all = append(all, rtt, rate)
		for _, n := range []int{64 << 10, large} {
			more, err := nearWrites(c, p, n)
			if err != nil {
				return err
			}
			all = append(all, more...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, n := range []int{64 << 10, large} {
		r, err := nearCopied(c, n)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func sizeOf(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// writes returns the rate of WRITEs of n bytes, in bytes per second.
func writes(c *config, p *endpoint.Pair, n int) (v float64, err error) {
	err = p.Serving(endpoint.Serving{Mode: endpoint.Spin}, func() error {
		v, err = p.Pump(c.each, writeWindow, p.Remote(verbs.WRRDMAWrite, 0, 0, n))
		return err
	})
	return v * float64(n), err
}

// nearWrites compares WRITEs from AllocBuffer memory, which the receiver reads in place, with TCP and with
// copying memory.
func nearWrites(c *config, p *endpoint.Pair, n int) ([]result, error) {
	what := "shm: RC WRITE of " + sizeOf(n) + ", "
	tcp := result{Name: fmt.Sprint("shm-write-", n), What: what + "throughput", BaseOf: "TCP", Unit: "bytes/s", Target: 3}
	mem := result{Name: fmt.Sprint("shm-copy-", n), What: what + "throughput", BaseOf: "memcpy", Unit: "bytes/s",
		Target: 0.5}
	conn, err := p.DialTCP(n, false)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	write := func() (float64, error) { return writes(c, p, n) }
	err = tcp.rounds(c, write, func() (float64, error) {
		v, err := endpoint.TCPRate(c.each, conn)
		return v * float64(n), err
	})
	if err != nil {
		return nil, err
	}
	from, to := bytes.Repeat([]byte{1}, n), make([]byte, n) // memory that was never written is one page
	err = mem.rounds(c, write, func() (float64, error) { return copies(c.each, to, from), nil })
	return []result{tcp, mem}, err
}

// nearCopied measures WRITEs from ordinary memory, which are copied twice: into a ring and out of it.
func nearCopied(c *config, n int) (result, error) {
	r := result{Name: fmt.Sprint("shm-ring-", n), What: "shm: RC WRITE of " + sizeOf(n) + " of ordinary memory",
		BaseOf: "TCP", Unit: "bytes/s"}
	err := pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 2 * large, Ordinary: true},
		func(p *endpoint.Pair) error {
			conn, err := p.DialTCP(n, false)
			if err != nil {
				return err
			}
			defer conn.Close()
			return r.rounds(c, func() (float64, error) { return writes(c, p, n) }, func() (float64, error) {
				v, err := endpoint.TCPRate(c.each, conn)
				return v * float64(n), err
			})
		})
	return r, err
}

// copies returns how many bytes per second copy moves.
func copies(each time.Duration, to, from []byte) float64 {
	n := 0
	start := time.Now()
	for time.Since(start) < each {
		for range 16 {
			n += copy(to, from)
		}
	}
	return float64(n) / time.Since(start).Seconds()
}

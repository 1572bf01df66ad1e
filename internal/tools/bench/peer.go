package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
)

// A program of UCX, of which --peer runs two processes alternately with the two of bench.
const ucxProgram = "ucx_perftest"

// A ucxTest is one measurement of ucx_perftest.
type ucxTest struct {
	tls   string // UCX_TLS: the transports
	test  string
	bytes int
	count int // messages
}

const (
	ucxStart = 5 * time.Second  // for the server to listen
	ucxLimit = 60 * time.Second // for one test
)

// peer compares with UCX in the same run.
func peer(c *config) ([]result, error) {
	if c.peer == "" {
		return nil, nil
	}
	if _, err := exec.LookPath(ucxProgram); err != nil {
		return nil, fmt.Errorf("--peer ucx: %w; install UCX (Debian: apt install ucx-utils)", err)
	}
	all, err := peerNear(c)
	if err != nil {
		return nil, err
	}
	r := result{Name: "ucx-latency", What: "udp: RC SEND of 8 bytes, round trip", BaseOf: "UCX tcp", Unit: "s", Target: 1,
		AtMost: true}
	err = overUDP(func() error {
		return pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
			return r.rounds(c, pingPong(c, p), ucxTest{"tcp,self", "tag_lat", small, 20_000}.roundTrip)
		})
	})
	return append(all, r), err
}

// peerNear compares two processes of one host over shared memory.
func peerNear(c *config) (all []result, err error) {
	const posix = "posix,self"
	err = pair(endpoint.Options{QPs: 1, Depth: sendWindow, Bytes: 2 * large}, func(p *endpoint.Pair) error {
		rtt := result{Name: "ucx-shm-latency", What: "shm: RC SEND of 8 bytes, round trip", BaseOf: "UCX posix", Unit: "s",
			Target: 3, AtMost: true}
		if err := rtt.rounds(c, pingPong(c, p), ucxTest{posix, "tag_lat", small, 200_000}.roundTrip); err != nil {
			return err
		}
		rate := result{Name: "ucx-shm-rate", What: "shm: RC SEND of 8 bytes, 64 outstanding", BaseOf: "UCX posix",
			Unit: "messages/s", Target: 0.7}
		err := rate.rounds(c, func() (float64, error) { return sends(p, p.PumpBatches, c.each, sendWindow) },
			ucxTest{posix, "tag_bw", small, 2_000_000}.rate)
		if err != nil {
			return err
		}
		all = append(all, rtt, rate)
		for _, n := range []int{64 << 10, large} {
			r := result{Name: fmt.Sprint("ucx-shm-write-", n), What: "shm: RC WRITE of " + sizeOf(n), BaseOf: "UCX put",
				Unit: "bytes/s", Target: 0.7}
			put := ucxTest{"posix,cma,self", "ucp_put_bw", n, 4096 * (1 << 20 / n)}
			err := r.rounds(c, func() (float64, error) { return writes(c, p, n) }, func() (float64, error) {
				v, err := put.rate()
				return v * float64(n), err
			})
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

// pingPong returns a function that measures the round trip of 8 bytes, in seconds.
func pingPong(c *config, p *endpoint.Pair) func() (float64, error) {
	return func() (float64, error) {
		var d time.Duration
		err := p.Serving(endpoint.Serving{Mode: endpoint.Pong, Bytes: small}, func() (err error) {
			d, err = p.PingPong(c.each, small)
			return err
		})
		return d.Seconds(), err
	}
}

// roundTrip returns twice the latency of a message, in seconds: ucx_perftest reports one way.
func (u ucxTest) roundTrip() (float64, error) {
	f, err := u.run()
	return 2 * f.latency, err
}

// rate returns the number of messages per second.
func (u ucxTest) rate() (float64, error) {
	f, err := u.run()
	return f.rate, err
}

// run runs the test with a server of its own.
func (u ucxTest) run() (f ucxFigures, err error) {
	port, err := freePort()
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ucxLimit)
	defer cancel()
	server := u.command(ctx, port)
	if err := server.Start(); err != nil {
		return f, err
	}
	defer func() {
		cancel()
		_ = server.Wait() // it was killed, or has served the client
	}()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		client := u.command(ctx, port, "-t", u.test, "-s", strconv.Itoa(u.bytes), "-n", strconv.Itoa(u.count), "-w", "1000",
			"-f", "127.0.0.1")
		var errs bytes.Buffer
		client.Stderr = &errs
		out, err := client.Output()
		switch {
		case err == nil:
			return parseUCX(out)
		case ctx.Err() != nil:
			return f, fmt.Errorf("%s -t %s: not finished within %v", ucxProgram, u.test, ucxLimit)
		case time.Since(begin) > ucxStart:
			return f, fmt.Errorf("%s -t %s: %w: %q", ucxProgram, u.test, err, errs.String())
		}
	}
}

func (u ucxTest) command(ctx context.Context, port int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, ucxProgram, append([]string{"-p", strconv.Itoa(port)}, args...)...)
	cmd.Env = append(os.Environ(), "UCX_TLS="+u.tls)
	return cmd
}

// freePort returns a TCP port at which nothing listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// ucxFigures are the overall figures of a test.
type ucxFigures struct {
	latency float64 // s
	rate    float64 // messages/s
}

// parseUCX reads the last line of the output with -f: the number of messages; the latency in us of 50 %, the mean of
// the last interval and of all; the bandwidth twice; the messages per second of the last interval and of all.
func parseUCX(out []byte) (f ucxFigures, err error) {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	v := strings.Fields(strings.TrimPrefix(last, "Final:"))
	const columns = 8
	if len(v) != columns {
		return f, fmt.Errorf("%s printed %q: want %d numbers", ucxProgram, last, columns)
	}
	us, err := strconv.ParseFloat(v[3], 64)
	rate, err2 := strconv.ParseFloat(v[7], 64)
	if err := errors.Join(err, err2); err != nil {
		return f, fmt.Errorf("%s printed %q: %w", ucxProgram, last, err)
	}
	return ucxFigures{us / 1e6, rate}, nil
}

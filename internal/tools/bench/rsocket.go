package bench

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/rsocket"
)

const (
	streamBytes  = 64 << 10 // bytes of a write
	streamBurst  = 512      // writes before the receiver answers
	requestBytes = 64
	// rsocketBytes is the target for the resident memory of a process with all connections, in bytes.
	rsocketBytes = 400e6
	// idleShare is the target for the processor time of both processes together while all connections are
	// idle, in cores.
	idleShare = 0.01
	idleTime  = 2 * time.Second
)

// streamOptions are for throughput; TCP's windows grow by themselves.
var streamOptions = rsocket.Options{SendBuf: 1 << 20, RecvBuf: 1 << 20, Polling: 100 * time.Microsecond}

// requestOptions are for requests and answers, with polling enabled.
var requestOptions = rsocket.Options{Polling: time.Millisecond}

// smallOptions are for many connections.
var smallOptions = rsocket.Options{SendBuf: 4096, RecvBuf: 4096, SQSize: 16, RQSize: 16}

// rsockets compares streams with TCP, then measures many connections. The targets differ between UDP and
// shared memory.
func rsockets(c *config) ([]result, error) {
	stream := result{Name: "rsocket stream", What: "rsocket, stream of 64 KiB writes", BaseOf: "TCP", Unit: "bytes/s",
		Target: 2}
	request := result{Name: "rsocket request", What: "rsocket, request and answer of 64 bytes", BaseOf: "TCP", Unit: "s",
		Target: 0.5, AtMost: true}
	if os.Getenv("VERBENA_SHM") == "0" { // over UDP
		stream.Target, request.Target = 0.8, 2
	}
	many := result{
		Name: "rsocket size", What: term.Count(uint64(c.qps)) + " rsockets, resident memory", Unit: "bytes",
		Base: rsocketBytes, Target: 1, AtMost: true,
	}
	rate := result{Name: "rsocket accept", What: "rsockets made, 64 at a time", Unit: "connections/s", Base: 5000,
		Target: 1}
	idle := result{Name: "rsocket idle", What: term.Count(uint64(c.qps)) + " idle rsockets, processor time",
		Unit: "cores", Base: idleShare, Target: 1, AtMost: true}
	p, err := endpoint.Start()
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	err = against(p, streamOptions, streamBytes, false, func(rs, tcp *duo.TCPConn) error {
		return stream.rounds(c, func() (float64, error) { return flow(c.each, rs) },
			func() (float64, error) { return flow(c.each, tcp) })
	})
	if err != nil {
		return nil, err
	}
	err = against(p, requestOptions, requestBytes, true, func(rs, tcp *duo.TCPConn) error {
		trip := func(s *duo.TCPConn) func() (float64, error) {
			return func() (float64, error) {
				d, err := endpoint.TCPLatency(c.each, s)
				return d.Seconds(), err
			}
		}
		return request.rounds(c, trip(rs), trip(tcp))
	})
	if err != nil {
		return nil, err
	}
	c.measuring(many.What + ": connecting")
	k, err := keepRSockets(p, c.qps)
	many.RDMA, rate.RDMA, idle.RDMA = k.bytes, k.rate, k.idle
	for _, r := range []*result{&many, &idle, &rate} {
		r.Ratio = r.RDMA / r.Base
		r.judge()
	}
	return []result{stream, request, many, idle, rate}, err
}

// against runs do with an rsocket stream and a TCP stream.
func against(p *endpoint.Pair, o rsocket.Options, size int, echo bool, do func(rs, tcp *duo.TCPConn) error) error {
	dial, err := rsocketDialer(p, o)
	if err != nil {
		return err
	}
	conn, err := dial()
	if err != nil {
		return err
	}
	rs, err := duo.NewStream(conn, size, echo)
	if err != nil {
		return err
	}
	defer rs.Close()
	tcp, err := p.DialTCP(size, echo)
	if err != nil {
		return err
	}
	defer tcp.Close()
	return do(rs, tcp)
}

// rsocketDialer makes the second process listen, and returns a function that connects to it.
func rsocketDialer(p *endpoint.Pair, o rsocket.Options) (func() (net.Conn, error), error) {
	var port uint16
	if err := p.Call("RSocket", endpoint.RSockets{At: p.There, Options: o}, &port); err != nil {
		return nil, err
	}
	d := &rsocket.Dialer{Options: o, KeepAlive: -1, Timeout: time.Minute}
	return func() (net.Conn, error) { return d.Dial("tcp", netip.AddrPortFrom(p.There, port).String()) }, nil
}

// flow returns how many bytes per second a sink receives.
func flow(each time.Duration, s *duo.TCPConn) (float64, error) {
	start, n := time.Now(), 0
	for ; time.Since(start) < each; n += streamBurst {
		if err := s.Stream(streamBurst); err != nil {
			return 0, err
		}
	}
	return float64(n) * streamBytes / time.Since(start).Seconds(), nil
}

// upkeep is the cost of many connections: resident memory in bytes of the accepting process, the cores that
// both processes use while all connections are idle, and connections made per second.
type upkeep struct{ bytes, idle, rate float64 }

// keepRSockets makes n connections and measures their upkeep.
func keepRSockets(p *endpoint.Pair, n int) (k upkeep, err error) {
	dial, err := rsocketDialer(p, smallOptions)
	if err != nil {
		return k, err
	}
	var mu sync.Mutex
	var kept []net.Conn
	var left atomic.Int64
	left.Store(int64(n))
	start := time.Now()
	err = parallel(func() error {
		for left.Add(-1) >= 0 {
			c, err := dial()
			if err != nil {
				return err
			}
			mu.Lock()
			kept = append(kept, c)
			mu.Unlock()
		}
		return nil
	})
	took := time.Since(start)
	k.rate = float64(n) / took.Seconds()
	var rss uint64
	if err == nil {
		err = p.Call("RSS", endpoint.None{}, &rss)
		k.bytes = float64(rss)
	}
	if err == nil {
		k.idle, err = idleCores(p)
	}
	for _, c := range kept {
		_ = c.(*rsocket.Conn).SetLinger(0)
		_ = c.Close()
	}
	return k, err
}

// idleCores returns how many cores both processes use while all connections are idle.
func idleCores(p *endpoint.Pair) (float64, error) {
	endpoint.Settle()
	if err := p.Call("Settle", endpoint.None{}, &endpoint.None{}); err != nil {
		return 0, err
	}
	time.Sleep(idleTime) // timers of the set-up expire
	before, err := bothCPU(p)
	if err != nil {
		return 0, err
	}
	time.Sleep(idleTime)
	after, err := bothCPU(p)
	return (after - before).Seconds() / idleTime.Seconds(), err
}

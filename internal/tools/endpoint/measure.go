package endpoint

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/verbs"
)

// Pump keeps window copies of wr in flight, on the QPs in turn, and returns the number of completed
// requests per second. Each request is a post of its own, as in a program that has one message for one peer
// at a time.
func (p *Pair) Pump(each time.Duration, window int, wr verbs.SendWR) (float64, error) {
	qps, next := p.End.QPs, 0
	return p.pump(each, window, func(n int) error {
		for range n {
			if err := qps[next].PostSend(wr); err != nil {
				return err
			}
			if next++; next == len(qps) {
				next = 0
			}
		}
		return nil
	})
}

// PumpBatches is Pump on the first QP, with one post for all requests that the window allows.
func (p *Pair) PumpBatches(each time.Duration, window int, wr verbs.SendWR) (float64, error) {
	batch := slices.Repeat([]verbs.SendWR{wr}, window)
	return p.pump(each, window, func(n int) error { return p.End.QPs[0].PostSend(batch[:n]...) })
}

func (p *Pair) pump(each time.Duration, window int, post func(n int) error) (float64, error) {
	start := time.Now()
	running := true
	for posted, done := 0, 0; ; {
		if running = running && time.Since(start) < each; running {
			n := window - (posted - done)
			if err := post(n); err != nil {
				return 0, err
			}
			posted += n
		}
		if posted == done {
			return float64(done) / time.Since(start).Seconds(), nil
		}
		wcs, err := p.End.Wait()
		if err != nil {
			return 0, err
		}
		done += len(wcs)
	}
}

// Latency returns the median time from posting wr to its completion.
func (p *Pair) Latency(each time.Duration, wr verbs.SendWR) (time.Duration, error) {
	return medianOf(each, func() error {
		_, err := p.Do(wr)
		return err
	})
}

// PingPong returns the median time from sending a message of n bytes to receiving the echo; the second
// process serves with Pong.
func (p *Pair) PingPong(each time.Duration, n int) (time.Duration, error) {
	qp := p.End.QPs[0]
	ball := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, n)}
	receive := verbs.RecvWR{SGList: []verbs.SGE{p.End.MR.SGE(0, n)}}
	if err := qp.PostRecv(receive); err != nil {
		return 0, err
	}
	return medianOf(each, func() error {
		if err := qp.PostSend(ball); err != nil {
			return err
		}
		for waiting := 2; waiting > 0; { // our SEND and the echo
			wcs, err := p.End.Wait()
			if err != nil {
				return err
			}
			waiting -= len(wcs)
		}
		return qp.PostRecv(receive)
	})
}

// DialTCP connects to the second process by TCP, for messages of n bytes.
func (p *Pair) DialTCP(n int, echo bool) (*duo.TCPConn, error) {
	var to netip.AddrPort
	if err := p.Call("TCP", p.There, &to); err != nil {
		return nil, err
	}
	return duo.DialTCP(to, n, echo)
}

// TCPLatency returns the median round trip of an echo connection.
func TCPLatency(each time.Duration, c *duo.TCPConn) (time.Duration, error) {
	return medianOf(each, c.RoundTrip)
}

// TCPRate returns the number of messages per second that a sink connection accepts.
func TCPRate(each time.Duration, c *duo.TCPConn) (float64, error) {
	const burst = 8
	start, n := time.Now(), 0
	for ; time.Since(start) < each; n += burst {
		if err := c.Stream(burst); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// medianOf calls do repeatedly and returns the median of its durations.
func medianOf(each time.Duration, do func() error) (time.Duration, error) {
	times := make([]time.Duration, 0, 1<<16)
	for begin := time.Now(); ; {
		start := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		end := time.Now()
		times = append(times, end.Sub(start))
		if end.Sub(begin) > each {
			break
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// Pumping configures Second.Pump, which WRITEs to the passive first process.
type Pumping struct {
	Peer   Hello
	Bytes  int // of each WRITE
	Window int // WRITEs in flight
	Each   time.Duration
}

// Hello returns the connection data that the second process needs to WRITE to this one's End.
func (p *Pair) Hello() (Hello, error) {
	infos, err := p.End.Infos()
	return Hello{QPs: infos, Addr: p.End.MR.Addr(), RKey: p.End.MR.RKey()}, err
}

// Pump returns the number of completed WRITEs per second.
func (s *Second) Pump(a Pumping, rate *float64) (err error) {
	p := &Pair{End: s.end, Peer: a.Peer}
	*rate, err = p.PumpBatches(a.Each, a.Window, p.Remote(verbs.WRRDMAWrite, 0, 0, a.Bytes))
	return err
}

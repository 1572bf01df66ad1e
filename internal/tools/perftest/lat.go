package perftest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// latency measures all sizes.
func (r *run) latency() error {
	for _, size := range r.sizes() {
		if err := r.latencyOf(size); err != nil {
			return err
		}
	}
	return nil
}

// rally is the latency test of one size.
type rally struct {
	*run
	e     *end            // sends
	in    *end            // receives; e itself but with XRC
	times []time.Duration // posting time of each message
	watch
	sampled uint64
	busy    int // sends without a completion
	wait    *waiter
	wcs     [4]verbs.WC
}

func (r *run) latencyOf(size int) error {
	if err := r.prepare(size); err != nil {
		return err
	}
	if r.verb == send {
		if err := r.sync(); err != nil {
			return err
		}
	}
	if r.cpuUtil {
		r.cpuBefore = processorTimes()
	}
	_, receivers := r.receivers()
	l := &rally{run: r, e: r.qps[0], in: receivers[0], wait: r.newWaiter("the peer's message")}
	l.start()
	if r.duration == 0 {
		l.times = make([]time.Duration, 0, r.iters)
	}
	var err error
	switch {
	case r.verb.waits():
		err = l.alone()
	case r.verb == write:
		err = l.byMemory(size)
	default:
		err = l.byMessage()
	}
	if err != nil {
		return err
	}
	r.addLat(l.report(size))
	return nil
}

// runs reports whether message n is to be sent, and counts for -D.
func (l *rally) runs(n int) bool {
	if l.duration == 0 {
		return n < l.iters
	}
	return l.elapsed() < seconds(l.duration)
}

func (l *rally) stamp() {
	t := l.elapsed()
	if l.duration == 0 {
		l.times = append(l.times, t)
	} else if m := seconds(l.margin); t >= m && t < seconds(l.duration)-m {
		l.sampled++
	}
}

// alone sends one request after the other: READ and atomics.
func (l *rally) alone() error {
	wr := &l.e.wrs[0]
	wr.Flags |= verbs.SendSignaled
	for n := 0; l.runs(n); n++ {
		l.stamp()
		if err := l.e.qp.PostSend(*wr); err != nil {
			return err
		}
		if err := l.await(l.sendCQ, true, false); err != nil {
			return err
		}
	}
	return nil
}

// byMessage exchanges SENDs. The client begins.
func (l *rally) byMessage() error {
	wr := &l.e.wrs[0]
	for sent, got := 0, 0; l.runs(sent) || l.duration == 0 && got < l.iters; {
		renews := false
		if l.server == "" || sent > 0 {
			err := l.await(l.recvCQ, false, true)
			if l.duration > 0 && !l.runs(0) {
				return nil
			}
			if err != nil {
				return err
			}
			got++
			l.in.queued--
			renews = l.duration > 0 || l.in.rposted < l.iters
		}
		// The answer does not wait for the receive that replaces this one, if the peer's next message has another.
		if renews && l.in.queued == 0 {
			renews = false
			if err := l.renew(); err != nil {
				return err
			}
		}
		if l.runs(sent) {
			l.stamp()
			if err := l.send(wr); err != nil {
				return err
			}
			sent++
		}
		if renews {
			if err := l.renew(); err != nil {
				return err
			}
		}
	}
	for l.busy > 0 {
		if err := l.await(l.sendCQ, true, false); err != nil {
			return err
		}
		l.busy--
	}
	return nil
}

// renew posts a receive in place of one that is used.
func (l *rally) renew() error {
	if err := l.postRecv(l.in); err != nil {
		return err
	}
	l.in.rposted++
	return nil
}

// send posts a SEND. With a queue depth of 1 every request is signaled; its completion has arrived before the
// answer, or arrives soon after.
func (l *rally) send(wr *verbs.SendWR) error {
	for l.busy >= l.txDepth {
		if err := l.await(l.sendCQ, true, false); err != nil {
			return err
		}
		l.busy--
	}
	wr.Flags |= verbs.SendSignaled
	l.busy++
	return l.e.qp.PostSend(*wr)
}

// await waits for a completion.
func (l *rally) await(cq *verbs.CQ, sends, receives bool) error {
	if err := l.wait.progress(); err != nil {
		return err
	}
	for {
		n, err := cq.Poll(l.wcs[:1])
		if err != nil {
			return err
		}
		if n == 1 {
			return l.wcs[0].Err()
		}
		if l.duration > 0 && receives && !l.runs(0) {
			return nil
		}
		if receives && l.busy > 0 && l.wait.spins%reapEvery == 0 {
			if err := l.reap(); err != nil {
				return err
			}
		}
		if l.events {
			if err := cq.ReqNotify(false); err != nil {
				return err
			}
			if n, err = cq.Poll(l.wcs[:1]); err != nil || n == 1 {
				if err == nil {
					err = l.wcs[0].Err()
				}
				return err
			}
			ev, err := l.wait.event()
			if ev != nil {
				ev.AckEvents(1)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := l.wait.check(); err != nil {
			return err
		}
	}
}

// reapEvery is the number of empty polls for a message between two polls for the completion of a send.
const reapEvery = 8

// reap takes the completion of a send while the peer's answer is on its way, so that the next send does not wait.
func (l *rally) reap() error {
	n, err := l.sendCQ.Poll(l.wcs[:1])
	if n == 0 || err != nil {
		return err
	}
	l.busy--
	return l.wcs[0].Err()
}

// byMemory exchanges WRITEs whose last byte counts them. The server begins.
func (l *rally) byMemory(size int) error {
	wr := &l.e.wrs[0]
	wr.Flags |= verbs.SendSignaled
	mem := l.mr.Bytes()
	first, _ := l.receivers()
	out, in := l.sendAt(0)+size-1, l.recvAt(first)+size-1
	for sent, got, done := 0, 0, 0; l.runs(sent) || l.duration == 0 && (done < l.iters || got < l.iters); {
		if (l.duration > 0 || got < l.iters) && (sent > 0 || l.server != "") {
			got++
			if over, err := l.look(&mem[in], byte(got), &done); over || err != nil {
				return err
			}
		}
		if l.runs(sent) {
			l.stamp()
			sent++
			mem[out] = byte(sent)
			if err := l.e.qp.PostSend(*wr); err != nil {
				return err
			}
		}
		for done < sent {
			if err := l.await(l.sendCQ, true, false); err != nil {
				return err
			}
			done++
		}
	}
	return nil
}

// look waits until the byte at b has the value want. over reports that the time is over.
func (l *rally) look(b *byte, want byte, done *int) (over bool, err error) {
	if err := l.wait.progress(); err != nil {
		return false, err
	}
	for *b != want {
		n, err := l.sendCQ.Poll(l.wcs[:])
		for i := range l.wcs[:n] {
			if e := l.wcs[i].Err(); e != nil && err == nil {
				err = e
			}
			*done++
		}
		if err == nil {
			err = l.wait.check()
		}
		if err != nil {
			return false, err
		}
		if l.duration > 0 && !l.runs(0) {
			return true, nil
		}
	}
	return false, nil
}

// report computes the results in microseconds: half of each round trip.
func (l *rally) report(size int) latReport {
	rep := latReport{size: size, iters: uint64(l.iters)}
	factor := 2.0
	if l.verb.waits() {
		factor = 1
	}
	if l.duration > 0 {
		t := seconds(l.duration - 2*l.margin).Seconds()
		rep.duration, rep.iters = true, l.sampled
		rep.average = t * 1e6 / factor / float64(max(l.sampled, 1))
		rep.perSecond = float64(l.sampled) / t
		return rep
	}
	all := make([]float64, len(l.times)-1)
	for i := range all {
		all[i] = float64(l.times[i+1]-l.times[i]) / 1e3 / factor
	}
	if l.unsorted {
		l.printAll(all)
	}
	slices.Sort(all)
	n := max(len(all)-2, 1) // the C program excludes two
	if l.histogram {
		l.printAll(all[:n])
	}
	rep.least, rep.most, rep.typical = all[0], all[min(n, len(all)-1)], median(all[:n])
	for _, v := range all[:n] {
		rep.average += v / float64(n)
	}
	var sum float64
	for _, v := range all[:n] {
		sum += (v - rep.average) * (v - rep.average)
	}
	rep.deviation = math.Sqrt(sum / float64(n))
	at := func(q float64) float64 { return all[min(int(math.Ceil(float64(n)*q)), len(all)-1)] }
	rep.p99, rep.p999 = at(0.99), at(0.999)
	return rep
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func (r *run) printAll(all []float64) {
	fmt.Fprintln(r.env.Stdout, "#, usec")
	for i, v := range all {
		fmt.Fprintf(r.env.Stdout, "%d, %g\n", i+1, v)
	}
	r.printColumns()
}

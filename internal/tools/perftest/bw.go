package perftest

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// stream is the bandwidth test of one size.
type stream struct {
	*run
	size      int
	total     int // sends of all QPs
	rtotal    int // receives
	posted    int
	done      int
	got       int
	postTimes []time.Duration // without -D
	doneTimes []time.Duration
	watch
	began   bool
	ended   time.Duration // of a receiver: when the last message arrived
	sampled uint64        // with -D: messages between the margins
	wcs     [64]verbs.WC
	wait    *waiter
	timer   int
	phase   phase
}

// phase is the progress of a test with -D.
type phase int

const (
	early phase = iota // in the first margin
	sampling
	late
	over
)

// bandwidth measures all sizes.
func (r *run) bandwidth() error {
	for _, size := range r.sizes() {
		if err := r.bandwidthOf(size); err != nil {
			return err
		}
	}
	if r.server != "" && !r.duplex && r.verb != send {
		if err := r.sync(); err != nil {
			return err
		}
		last := r.results[len(r.results)-1].bw
		_, err := r.peer.swapReports(&last)
		return err
	}
	return nil
}

// bandwidthOf measures one size.
func (r *run) bandwidthOf(size int) error {
	if err := r.prepare(size); err != nil {
		return err
	}
	if r.verb == send || r.duplex {
		if err := r.sync(); err != nil {
			return err
		}
	}
	r.credits.forget()
	s := &stream{run: r, size: size}
	if err := s.flow(); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	mine := s.report()
	if r.duplex && r.verb != send && r.all {
		if err := r.sync(); err != nil {
			return err
		}
	}
	if r.duplex && (r.verb != send || r.duration == 0) {
		theirs, err := r.peer.swapReports(&mine)
		if err != nil {
			return err
		}
		r.addBW(mine, &theirs)
	} else {
		r.addBW(mine, nil)
	}
	r.noteLimits()
	if r.verb == send && r.all {
		return r.sync()
	}
	return nil
}

// watch is the server's side of a test that only the client measures: it waits and prints the client's
// result.
func (r *run) watch() error {
	if err := r.sync(); err != nil {
		return err
	}
	r.cpuBefore = processorTimes()
	theirs, err := r.peer.swapReports(&bwReport{})
	if err != nil {
		return err
	}
	r.addBW(theirs, nil)
	return nil
}

// prepare builds the requests for messages of a size and posts receives.
func (r *run) prepare(size int) error {
	for i, e := range r.qps {
		e.posted, e.done, e.unsignaled, e.arrived = 0, 0, 0, 0
		e.sge[0] = r.mr.SGE(r.sendAt(i), size)
		e.wrs = make([]verbs.SendWR, r.postList)
		for k := range e.wrs {
			e.wrs[k] = r.request(e, r.remoteOf(i), size)
		}
	}
	if !r.receives() {
		return nil
	}
	first, receivers := r.receivers()
	for i, e := range receivers {
		// Receives that wait for lost messages of the last size are for the messages of this one.
		at, n := r.recvAt(first+i), r.size
		if r.typ == verbs.QPTypeUD {
			at, n = at-grhLen, n+grhLen
		}
		e.rsge[0] = r.mr.SGE(at, n)
		for e.queued < r.recvShare() {
			if err := r.postRecv(e); err != nil {
				return err
			}
		}
		e.rposted = e.queued
	}
	return nil
}

// request returns the request that is posted repeatedly.
func (r *run) request(e *end, remote *dest, size int) verbs.SendWR {
	wr := verbs.SendWR{SGList: e.sge[:], RemoteAddr: remote.vaddr, RKey: remote.rkey, RemoteSRQN: remote.srqn}
	switch r.verb {
	case send:
		wr.Opcode, wr.AH, wr.RemoteQPN, wr.RemoteQKey = verbs.WRSend, e.ah, e.rqpn, e.rqkey
	case write:
		wr.Opcode = verbs.WRRDMAWrite
	case read:
		wr.Opcode = verbs.WRRDMARead
	case atomic:
		wr.Opcode, wr.CompareAdd = verbs.WRAtomicFetchAndAdd, 1
		if r.cmpSwap {
			wr.Opcode, wr.CompareAdd, wr.Swap = verbs.WRAtomicCmpAndSwp, 0, 0
		}
	}
	if size <= r.inline {
		wr.Flags |= verbs.SendInline
	}
	return wr
}

// flow sends and receives until all messages are complete or the time is over.
func (s *stream) flow() error {
	if s.duration == 0 {
		s.total, s.rtotal = s.iters*s.numQP, s.iters*s.numQP
		if s.sends() {
			s.postTimes, s.doneTimes = make([]time.Duration, s.total), make([]time.Duration, s.total)
		}
	}
	sends, receives := s.sends(), s.receives()
	if sends {
		s.begin()
	}
	s.wait = s.newWaiter("a completion")
	for s.goesOn(sends, receives) {
		some := false
		if sends {
			posted, err := s.post()
			if err != nil {
				return err
			}
			some = posted
			n, err := s.complete()
			if err != nil {
				return err
			}
			some = some || n > 0
		}
		if receives {
			n, err := s.receive()
			if err != nil {
				return err
			}
			some = some || n > 0
		}
		switch {
		case some:
			if err := s.wait.progress(); err != nil {
				return err
			}
		case s.events && (s.credits == nil || !s.credits.held): // credits are no event
			if err := s.sleep(); err != nil {
				return err
			}
		default:
			if s.lost() {
				return nil
			}
			if err := s.wait.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// lost reports whether the missing messages are lost. UC and UD do not retransmit them, and a peer that has
// sent all of them does not report it.
func (s *stream) lost() bool {
	if s.reliable() || s.got == 0 || s.wait.spins%1024 != 0 || s.wait.idle() < lostAfter ||
		s.sends() && s.done < s.total {
		return false
	}
	fmt.Fprintf(s.env.Stderr,
		"%s: %d of %d messages arrived, the others were lost; %s does not retransmit them: "+
			"use fewer or smaller ones, or more receives (-r)\n",
		s.name, s.got, s.rtotal, connectionName(s.typ))
	s.rtotal = s.got
	return true
}

// lostAfter is the time after which a message of UC or UD counts as lost.
const lostAfter = 3 * time.Second

// begin starts the clock.
func (s *stream) begin() {
	s.start()
	s.began = true
	if s.cpuUtil {
		s.cpuBefore = processorTimes()
	}
}

// lap reports a result of a run without end, and begins the next one.
func (s *stream) lap() {
	if s.server != "" || s.verb == send {
		s.addBW(s.report(), nil)
		s.noteLimits()
	}
	s.begin()
	s.sampled, s.phase = 0, sampling
}

func (s *stream) goesOn(sends, receives bool) bool {
	if s.duration == 0 {
		return sends && s.done < s.total || receives && s.got < s.rtotal
	}
	if !s.began {
		return true
	}
	if s.timer++; s.timer%16 == 1 {
		s.tick(s.elapsed())
	}
	if s.phase == over && s.infinite {
		s.lap()
	}
	return s.phase != over
}

// tick advances the phase of -D.
func (s *stream) tick(t time.Duration) {
	d, m := seconds(s.duration), seconds(s.margin)
	switch {
	case t >= d:
		s.phase = over
	case t >= d-m:
		s.phase = late
	case t >= m:
		s.phase = sampling
	}
}

// post fills the send queues.
func (s *stream) post() (some bool, err error) {
	if s.credits != nil {
		s.credits.held = false
	}
	for i, e := range s.senders() {
		for e.posted-e.done+s.postList <= s.txDepth && (s.duration > 0 || e.posted < s.iters) && s.mayPost(i, e) {
			for k := range e.wrs {
				s.markSignaled(e, &e.wrs[k], i)
			}
			if s.postTimes != nil {
				now := s.elapsed()
				for k := range e.wrs {
					s.postTimes[s.posted+k] = now
				}
			}
			if err := e.qp.PostSend(e.wrs...); err != nil {
				return some, err
			}
			s.posted += s.postList
			some = true
		}
	}
	return some, nil
}

// markSignaled requests a completion for every cqMod-th request and for the last one. It also stands for
// the requests before it.
func (s *stream) markSignaled(e *end, wr *verbs.SendWR, i int) {
	e.posted++
	e.unsignaled++
	wr.Flags &^= verbs.SendSignaled
	if e.unsignaled == s.cqMod || s.duration == 0 && e.posted == s.iters {
		wr.Flags |= verbs.SendSignaled
		wr.WRID = uint64(i) | uint64(e.unsignaled)<<32
		e.unsignaled = 0
	}
}

// complete polls send completions.
func (s *stream) complete() (int, error) {
	n, err := s.sendCQ.Poll(s.wcs[:])
	if err != nil || n == 0 {
		return n, err
	}
	now := s.elapsed()
	for i := range s.wcs[:n] {
		wc := &s.wcs[i]
		if err := wc.Err(); err != nil {
			return n, fmt.Errorf("after %d of %d messages: %w", s.done, s.posted, err)
		}
		if wc.WRID&creditMark != 0 {
			s.qps[uint32(wc.WRID)].giving--
			continue
		}
		count := int(wc.WRID >> 32)
		s.qps[uint32(wc.WRID)].done += count
		for range count {
			if s.doneTimes != nil {
				s.doneTimes[s.done] = now
			}
			s.done++
		}
		if s.phase == sampling {
			s.sampled += uint64(count)
		}
	}
	return n, nil
}

// receive polls receive completions and reposts the receives.
func (s *stream) receive() (int, error) {
	n, err := s.recvCQ.Poll(s.wcs[:])
	if err != nil || n == 0 {
		return n, err
	}
	if !s.began {
		s.begin()
	}
	var arrivals [len(s.wcs)]uint32
	for i := range s.wcs[:n] {
		wc := &s.wcs[i]
		if err := wc.Err(); err != nil {
			return n, fmt.Errorf("after %d received messages: %w", s.got, err)
		}
		s.got++
		e := s.qps[wc.WRID]
		e.queued--
		if s.duration > 0 || e.rposted < s.iters {
			if err := s.postRecv(e); err != nil {
				return n, err
			}
			e.rposted++
		}
		arrivals[i] = uint32(wc.WRID)
	}
	for _, i := range arrivals[:n] { // giving credits polls
		if err := s.arrived(int(i)); err != nil {
			return n, err
		}
	}
	if s.phase == sampling {
		s.sampled += uint64(n)
	}
	s.ended = s.elapsed()
	return n, nil
}

// sleep waits for a completion event.
func (s *stream) sleep() error { return s.wait.sleep(s.sends(), s.receives()) }

// sleep waits until there may be completions. The first call after an event only requests the next one: what came
// before raises none, so the caller polls once more.
func (p *waiter) sleep(sends, receives bool) error {
	r := p.r
	if !p.armed {
		p.armed = true
		if sends {
			if err := r.sendCQ.ReqNotify(false); err != nil {
				return err
			}
		}
		if receives {
			return r.recvCQ.ReqNotify(false)
		}
		return nil
	}
	cq, err := p.event()
	if cq != nil {
		cq.AckEvents(1)
		p.armed = false
	}
	return err
}

// report computes the results.
func (s *stream) report() bwReport {
	unit := float64(1 << 20)
	if s.gbits {
		unit = 125e6
	}
	b := bwReport{size: s.size, iters: uint64(s.iters * s.numQP)}
	var took time.Duration
	switch {
	case s.duration > 0:
		took = seconds(s.duration - 2*s.margin)
		b.iters = s.sampled
	case s.doneTimes != nil:
		took = s.doneTimes[len(s.doneTimes)-1] - s.postTimes[0]
		if !s.noPeak {
			b.peak = float64(s.size) / s.least().Seconds() / unit
		}
	default:
		took, b.iters = s.ended, uint64(s.got)
	}
	t := max(took, 1).Seconds()
	b.average = float64(s.size) * float64(b.iters) / t / unit
	b.rate = float64(b.iters) / t / 1e6
	return b
}

// least returns the shortest time per message, averaged over any run of messages.
func (s *stream) least() time.Duration {
	n := len(s.doneTimes)
	step := 1 + n/2000
	best := s.doneTimes[n-1] - s.postTimes[0]
	for i := 0; i < n; i += step {
		for j := i; j < n; j += step {
			if t := (s.doneTimes[j] - s.postTimes[i]) / time.Duration(j-i+1); t < best && t > 0 {
				best = t
			}
		}
	}
	return max(best, 1)
}

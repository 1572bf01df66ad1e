package perftest

import (
	syncatomic "sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// credits is the flow control of ib_send_bw on iWARP, where a SEND without a receive ends the connection. The receiver
// WRITEs how many messages it has received into memory of the sender. The sender is less than the receiver's depth
// ahead of that. It is the C program's: both ends must have the same -r.
type credits struct {
	mr    *verbs.MR
	words []uint32 // for each QP what to send, then for each QP what has come; in the byte order of the machine
	held  bool     // sends wait for a credit
}

const (
	wordLen = 4
	// creditDepth is how many WRITEs of a QP's credits may be incomplete. They have room of their own in its send queue.
	creditDepth = 4
	// creditMark distinguishes the completions of these WRITEs.
	creditMark = 1 << 63
)

// needsCredits reports whether the test has this flow control.
func (r *run) needsCredits() bool {
	return r.verb == send && !r.lat && r.ctx.Device().TransportType() == verbs.TransportIWARP
}

// makeCredits makes the memory for the credits of all QPs.
func (r *run) makeCredits() error {
	if !r.needsCredits() {
		return nil
	}
	mem, err := verbs.AllocBuffer(2 * r.numQP * wordLen)
	if err != nil {
		return err
	}
	r.opened(func() error { return verbs.FreeBuffer(mem) })
	c := &credits{words: unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(mem))), 2*r.numQP)}
	if c.mr, err = r.pd.RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	r.opened(c.mr.Close)
	r.credits = c
	return nil
}

// creditRoom is the additional depth of a send queue.
func (t *table) creditRoom() int {
	if t.credits == nil {
		return 0
	}
	return creditDepth
}

// comeAt is the offset of the credits that come for QP i.
func (c *credits) comeAt(i int) int { return len(c.words)/2*wordLen + i*wordLen }

// forget drops the credits that came for another size.
func (c *credits) forget() {
	if c == nil {
		return
	}
	for i := len(c.words) / 2; i < len(c.words); i++ {
		syncatomic.StoreUint32(&c.words[i], 0)
	}
}

// mayPost reports whether the peer has receives for the next messages of QP i. Credits of messages that were not sent
// are those of the last size.
func (s *stream) mayPost(i int, e *end) bool {
	c := s.credits
	if c == nil {
		return true
	}
	came := int64(syncatomic.LoadUint32(&c.words[len(c.words)/2+i]))
	if came > int64(e.posted) {
		came = 0
	}
	ok := int64(e.posted+s.postList)-came < int64(s.rxDepth)
	c.held = c.held || !ok
	return ok
}

// arrived notes a message of QP i, and gives credits with each third of the receives.
func (s *stream) arrived(i int) error {
	if s.credits == nil {
		return nil
	}
	e := s.qps[i]
	e.arrived++
	if e.arrived%s.rxDepth%max(s.rxDepth/3, 1) != 0 {
		return nil
	}
	e.owed = true
	return s.give(i)
}

// give WRITEs what QP i has received, unless too many WRITEs are incomplete. Then the next one tells it.
func (s *stream) give(i int) error {
	c, e := s.credits, s.qps[i]
	for e.giving >= creditDepth {
		if n, err := s.complete(); err != nil || n == 0 {
			return err
		}
	}
	e.owed = false
	e.giving++
	syncatomic.StoreUint32(&c.words[i], uint32(e.arrived))
	return e.qp.PostSend(verbs.SendWR{WRID: creditMark | uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{c.mr.SGE(i*wordLen, wordLen)}, RemoteAddr: e.remote.vaddr, RKey: e.remote.rkey})
}

// settle waits until all credits are sent.
func (s *stream) settle() error {
	if s.credits == nil {
		return nil
	}
	for i, e := range s.qps {
		if e.owed {
			if err := s.give(i); err != nil {
				return err
			}
		}
		for e.giving > 0 || e.owed {
			n, err := s.complete()
			if err == nil && e.owed {
				err = s.give(i)
			}
			if err == nil && n == 0 {
				err = s.wait.check()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// When a program has refused a request or answered a look-up, its ID is over, but the peer may not have got the
// answer and repeat the request. The program gets a request once only: the machine keeps the answer, in an ID of its
// own, and sends it again.

// keepTime is how long an answer is kept after it was last sent: eight of the usual intervals of a peer's repetition.
// A peer that was told to wait, by an MRA, repeats later: it gets the answer eight times without asking, or four times
// if its source is unknown, whose address may be forged.
const (
	keepTime     = keepInterval << 3
	keepInterval = millisecond << (DefaultTimeout - 8)
)

// maxKept limits the answers that are kept. Further ones are not kept.
const maxKept = 4096

// keepAnswer keeps the answer to the request that kept has. waits: the peer, of kept.class, was told to wait.
func (m *Machine) keepAnswer(now int64, kept *ID, answer cmmsg.Msg, waits bool) {
	if m.kept >= maxKept {
		return
	}
	m.kept++
	kept.state, kept.destroyed = stateAnswered, true
	if kept.knownPeer {
		m.addPeer(kept)
	} else {
		m.sidr[kept.sidrKey()] = kept
	}
	if waits {
		all := uint8(keepTime/keepInterval - 1)
		n := all
		if kept.class == unknownSource {
			n = min(n, unknownREPs)
		}
		m.keep(now, kept, answer, keepInterval, n)
		kept.pend.rest = int64(all-n) * keepInterval
	} else {
		m.keep(now, kept, answer, keepTime, 0)
	}
}

// answerAgain sends a kept answer again. It does nothing if the program has not answered yet.
func (m *Machine) answerAgain(now int64, id *ID, out *Batch) {
	if id.state == stateAnswered {
		m.resend(id, out)
		m.arm(id, now+id.pend.last(id.pend.interval))
	}
}

// dropAnswer ends the keeping of an answer.
func (m *Machine) dropAnswer(kept *ID) {
	m.stopWaiting(kept)
	m.removePeer(kept)
	m.kept--
}

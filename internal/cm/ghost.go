package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// What a program has refused or looked up is over for it, but the peer may not have got the answer and ask again. So that the
// program is asked once only, the machine remembers the answer: in an ID of its own that nobody else knows, a ghost.

// ghostTime is how long an answer is remembered after it was last sent: eight of the usual times after which a peer asks
// again. A peer that was told to wait, by an MRA, does not ask so soon. It gets the answer eight times, unasked.
const (
	ghostTime     = ghostInterval << 3
	ghostInterval = millisecond << (DefaultTimeout - 8)
)

// maxGhosts bounds the answers that are remembered. What is beyond is forgotten at once.
const maxGhosts = 4096

// remember makes a ghost that knows whose question it was, and whether that peer has been told to wait.
func (m *Machine) remember(now int64, ghost *ID, answer cmmsg.Msg, waits bool) {
	if m.ghosts >= maxGhosts {
		return
	}
	m.ghosts++
	ghost.state, ghost.destroyed = stateGhost, true
	if ghost.knownPeer {
		m.learnPeer(ghost)
	} else {
		m.sidr[ghost.sidrKey()] = ghost
	}
	if waits {
		m.keep(now, ghost, answer, ghostInterval, ghostTime/ghostInterval-1)
	} else {
		m.keep(now, ghost, answer, ghostTime, 0)
	}
}

// answerAgain sends the answer of a ghost once more. It does nothing if the program is still to answer.
func (m *Machine) answerAgain(now int64, id *ID, out *Batch) {
	if id.state == stateGhost {
		m.resend(id, out)
		m.arm(id, now+id.pend.interval)
	}
}

// forget ends a ghost.
func (m *Machine) forget(ghost *ID) {
	m.settle(ghost)
	m.unlearn(ghost)
	m.ghosts--
}

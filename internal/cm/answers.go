package cm

import "time"

// Messages about connections, replies and services that do not exist are answered at a limited rate. Each answer
// costs more than a drop, and anybody can forge such messages. An honest peer that gets no answer repeats its message.
const (
	strayAnswers     = 1000 // per second
	strayAnswerBurst = 256
)

// answerLimit is a token bucket.
type answerLimit struct {
	now   int64 // time of the datagram being handled
	spent int64 // time at which the bucket is full again
}

// mayAnswer reports whether a message about something that does not exist is answered. If not, it is counted.
func (m *Machine) mayAnswer() bool {
	const each = int64(time.Second) / strayAnswers
	a := &m.answers
	a.spent = max(a.spent, a.now)
	if a.spent-a.now > (strayAnswerBurst-1)*each {
		m.Counters.Unanswered++
		return false
	}
	a.spent += each
	return true
}

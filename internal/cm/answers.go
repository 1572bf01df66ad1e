package cm

// Messages about connections, replies and services that do not exist are answered at a limited rate. Each answer
// costs more than a drop, and anybody can forge such messages. An honest peer that gets no answer repeats its message.
const (
	strayAnswers     = 1000 // per second
	strayAnswerBurst = 256
)

// answerLimit limits the answers.
type answerLimit struct {
	now    int64 // time of the datagram being handled
	bucket bucket
}

// mayAnswer reports whether a message about something that does not exist is answered. If not, it is counted.
func (m *Machine) mayAnswer() bool {
	if m.answers.bucket.pass(m.answers.now, strayAnswers, strayAnswerBurst) {
		return true
	}
	m.Counters.Unanswered++
	return false
}

package cm

import "fmt"

// State is the state of a connection or a look-up (enum ib_cm_state, with its values).
type State uint8

// The states. Linux uses 1 for a listener, which is a Listener here.
const (
	StateIdle        State = 0 // new, or over
	StateREQSent     State = 2
	StateREQRcvd     State = 3
	StateMRAREQSent  State = 4 // the peer has to wait for the answer
	StateMRAREQRcvd  State = 5
	StateREPSent     State = 6
	StateREPRcvd     State = 7
	StateMRAREPSent  State = 8
	StateMRAREPRcvd  State = 9
	StateEstablished State = 10
	StateDREQSent    State = 11
	StateDREQRcvd    State = 12
	StateTimewait    State = 13
	StateSIDRREQSent State = 14
	StateSIDRREQRcvd State = 15

	// stateAnswered is a kept answer (kept.go). IDs of callers are never in it.
	stateAnswered State = 16
)

var stateNames = [...]string{
	"IDLE", "LISTEN", "REQ_SENT", "REQ_RCVD", "MRA_REQ_SENT", "MRA_REQ_RCVD", "REP_SENT", "REP_RCVD", "MRA_REP_SENT",
	"MRA_REP_RCVD",
	"ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT", "SIDR_REQ_SENT", "SIDR_REQ_RCVD", "answered",
}

// String returns Linux's name of the state: "MRA_REQ_SENT".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// is reports whether s is one of the states.
func (s State) is(states ...State) bool {
	for _, t := range states {
		if s == t {
			return true
		}
	}
	return false
}

package cm

import "fmt"

// State is where a connection or a look-up is (enum ib_cm_state, with its values).
type State uint8

// States. 1 is Linux's for a listener, which is a Listener here.
const (
	StateIdle        State = 0 // not begun, or over
	StateREQSent     State = 2
	StateREQRcvd     State = 3
	StateMRAREQSent  State = 4 // and the peer knows that it has to wait
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

	// stateGhost is the machine's memory of an answer, to send it again (ghost.go); no ID that a caller has is in it.
	stateGhost State = 16
)

var stateNames = [...]string{
	"IDLE", "LISTEN", "REQ_SENT", "REQ_RCVD", "MRA_REQ_SENT", "MRA_REQ_RCVD", "REP_SENT", "REP_RCVD", "MRA_REP_SENT", "MRA_REP_RCVD",
	"ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT", "SIDR_REQ_SENT", "SIDR_REQ_RCVD", "ghost",
}

// String is the name as Linux has it: "MRA_REQ_SENT".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// is tells whether s is one of the states.
func (s State) is(states ...State) bool {
	for _, t := range states {
		if s == t {
			return true
		}
	}
	return false
}

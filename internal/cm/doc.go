// Package cm is InfiniBand connection management as a pure state machine: it makes, accepts, refuses and ends
// connections between queue pairs, and looks up datagram services, by exchanging the messages of
// internal/wire/cmmsg on QP 1. There is no goroutine, clock, socket or lock: time is an argument, datagrams
// come in and go out as bytes, and events report what happens.
//
//	rdmacm: Connect, Accept, Reject, Disconnect ...         events: REQ, REP, ESTABLISHED, REJ, DREQ ...
//	             |                                                  ^
//	             v                                                  |
//	       +------------------------- Machine, one for each device -+------+
//	       |  Listener  Listener          ID  ID  ID  ID  ...              |
//	       |     service IDs         communication IDs, peers, timers      |
//	       +-----+--------------------------^--------------------------^---+
//	             |                          |                          |
//	             v                          |                          |
//	    Batch.Mail: to send on QP 1     OnMAD: from QP 1      OnTimer: at NextDeadline
//
// Every call takes the caller's Batch and appends to it: datagrams to be sent and events to be handed up. The caller
// empties it after each call, or after several. A Machine is not safe for concurrent use: callers hold a lock. An
// event's message aliases the datagram given to OnMAD: copy the parts that must live longer.
//
// A connection, from both ends (active: Connect; passive: a listener's EventREQ, Accept):
//
//	active                           passive
//	Connect     --- REQ --->         EventREQ (a new ID)
//	            <-- MRA ----         Delay, or a REQ that comes again
//	EventREP    <-- REP ----         Accept            move the QP to RTS before Accept
//	Establish   --- RTU --->         EventEstablished  move the QP to RTS before Establish
//	            ...                  ...
//	Disconnect  --- DREQ -->         EventDREQ         either side may begin
//	EventDREP   <-- DREP ---         Disconnect
//	EventTimewaitExit                EventTimewaitExit
//
// A peer whose process has died sends nothing more. OnDeath acts as if its kernel had sent the message that ends the
// connection (death.go).
//
// Instead of an answer either side may Reject; no answer at all ends in EventREQTimeout, EventREPTimeout or
// EventDREQTimeout. Disconnect answers a DREQ, or sends one if none has come. Destroy is right in every state: it
// refuses or closes, as the state requires, and there are no events afterwards. The machine itself keeps the answers
// that a peer may ask for again.
//
// The states have the numbers of Linux's enum ib_cm_state. The inputs of each, and the results (a * marks a message
// that is sent until it is answered, 1 + MaxRetries times):
//
//	IDLE             Connect: REQ* -> REQ_SENT            Lookup: SIDR_REQ* -> SIDR_REQ_SENT
//	                 a REQ for a listener -> REQ_RCVD     a SIDR_REQ for a listener -> SIDR_REQ_RCVD
//	REQ_SENT         REP -> REP_RCVD                      MRA: wait longer -> MRA_REQ_RCVD
//	MRA_REQ_RCVD     REJ -> IDLE (reason 10: TIMEWAIT)    no answer: REJ 4 -> IDLE      Destroy: REJ 4
//	REQ_RCVD         Accept: REP* -> REP_SENT             Reject: REJ -> IDLE           Destroy: REJ 28
//	MRA_REQ_SENT     REQ again: MRA -> MRA_REQ_SENT       REJ -> IDLE
//	REP_SENT         RTU, Notify -> ESTABLISHED           MRA: wait longer -> MRA_REP_RCVD
//	MRA_REP_RCVD     REQ again: REP again                 REJ -> IDLE                   Destroy: REJ 28
//	                 DREQ -> DREQ_RCVD                    no answer, 10 s at most: REJ 4 -> IDLE
//	REP_RCVD         Establish: RTU -> ESTABLISHED        Reject: REJ -> IDLE           Destroy: REJ 28
//	MRA_REP_SENT     REP again: MRA -> MRA_REP_SENT       REJ -> TIMEWAIT
//	ESTABLISHED      Disconnect: DREQ* -> DREQ_SENT       DREQ -> DREQ_RCVD             Destroy: DREQ once -> TIMEWAIT
//	                 REP again: RTU again                 REJ -> TIMEWAIT
//	DREQ_SENT        DREP -> TIMEWAIT                     DREQ: DREP -> TIMEWAIT        no answer -> TIMEWAIT
//	DREQ_RCVD        Disconnect, Destroy: DREP -> TIMEWAIT
//	TIMEWAIT         DREQ again: DREP again               REQ again: REJ 10             time over -> IDLE
//	SIDR_REQ_SENT    SIDR_REP -> IDLE                     no answer -> IDLE
//	SIDR_REQ_RCVD    Answer: SIDR_REP -> IDLE             SIDR_REQ again: SIDR_REP again Destroy: SIDR_REP 2
//
// A REQ or REP from a QP that already has a connection is answered with REJ 10, and the old connection is
// closed (stale.go). A DREQ that fits no connection is answered with a DREP, a REP that fits none with REJ 6.
//
// Where to look: connect.go the active side, accept.go the passive side, reject.go REJ and MRA, disconnect.go DREQ,
// DREP and timewait, sidr.go datagram services, lap.go alternate paths, listen.go the listener of a request,
// halfopen.go limits of handshakes that peers do not finish, stale.go, kept.go, receive.go the checks of OnMAD,
// timer.go repetition, attrs.go the attributes of the QP, machine.go communication IDs and PSNs.
//
// The sources are IBTA volume 1 chapter 12 and annexes A11 and A17, and what Linux does on the wire. The package
// imports internal/{board,secret,wire}, internal/wire/cmmsg and internal/link (for its Path).
package cm

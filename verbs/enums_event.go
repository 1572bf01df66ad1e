package verbs

// EventType is the type of an asynchronous event (enum ibv_event_type, manual section 19).
type EventType uint32

// The event types (IBV_EVENT_*) and what the event belongs to.
const (
	EventCQErr             EventType = 0  // CQ: overrun or protection error
	EventQPFatal           EventType = 1  // QP: no completions can be made
	EventQPReqErr          EventType = 2  // QP: a peer's request broke the protocol
	EventQPAccessErr       EventType = 3  // QP: a peer's request lacked the right
	EventCommEst           EventType = 4  // QP: the first packet came in RTR
	EventSQDrained         EventType = 5  // QP: the send queue is drained
	EventPathMig           EventType = 6  // QP: the alternate path is in use
	EventPathMigErr        EventType = 7  // QP
	EventDeviceFatal       EventType = 8  // device
	EventPortActive        EventType = 9  // port
	EventPortErr           EventType = 10 // port
	EventLIDChange         EventType = 11 // port
	EventPKeyChange        EventType = 12 // port
	EventSMChange          EventType = 13 // port
	EventSRQErr            EventType = 14 // SRQ
	EventSRQLimitReached   EventType = 15 // SRQ: fewer receives left than the armed limit
	EventQPLastWQEReached  EventType = 16 // QP: it takes no more from its SRQ
	EventClientReregister  EventType = 17 // port
	EventGIDChange         EventType = 18 // port
	EventWQFatal           EventType = 19 // WQ
	EventDeviceSpeedChange EventType = 20 // port
)

var eventTexts = []string{
	"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
	"local access violation work queue error", "communication established", "send queue drained", "path migrated",
	"path migration request error", "local catastrophic error", "port active", "port error", "LID change", "P_Key change",
	"SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration",
	"GID table change", "WQ fatal", "device speed change",
}

// String is the text of ibv_event_type_str; "unknown" for a value that is none.
func (t EventType) String() string { return textOf(eventTexts, int64(t)) }

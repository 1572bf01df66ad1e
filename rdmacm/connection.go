package rdmacm

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// connection is the connection of an ID, or its look-up of a datagram service.
type connection struct {
	conn   connState
	cmid   *cm.ID // the machine's; nil before Connect
	attrs  cm.Attrs
	cmPath cm.Path // of the peer's request or of ours, as the machine has it

	respRes, initDepth uint8 // READs and atomics at a time: of the peer, and of this side
	rnrRetry           uint8 // of a request that the kernel has taken
	peerECE            ECE

	unreachable error       // why the peer does not answer Disconnect; nil if that is not known
	watch       *time.Timer // of watchReach; nil once the request is answered

	asked *cm.ConnectParams // the request, while a REJ may lead to another one with a smaller path MTU; nil otherwise

	streaming  // stream.go
	kernelPart // kernel.go
	observed   // observe.go

	// Waits of a synchronous ID for completions, which end with the connection, or before it with Disconnect.
	waiting map[*context.CancelFunc]struct{}
	flushed bool // failQP has moved the QP to ERR: the waits have ended
	// failed is the event with which the QP went to ERR by itself; the waits have ended then too.
	failed verbs.EventType // 0 (CQ_ERR, which no QP has): none
	// fault is the first such event since the ID has its QP. Unlike failed it is set before the end of the stream, which
	// follows over iWARP, is reported.
	fault atomic.Uint32
}

// connState is the state of an ID's connection. The states of ID.state are those of librdmacm; connState says in
// addition how far CONNECT is, and how the connection ended.
type connState uint8

const (
	connNone        connState = iota // neither Connect nor a request
	connRequesting                   // active: the REQ or SIDR_REQ is sent
	connResponded                    // active, without QP: the REP has come; the program calls Establish
	connRequested                    // passive: the request waits for Accept or Reject
	connAccepted                     // passive: the REP is sent; of a look-up, the SIDR_REP
	connEstablished                  // RTU sent or received; of a look-up, the peer's QP is known

	// From here on the connection is over: connState.over.

	connPeerLeft     // DISCONNECTED was reported because the peer sent a DREQ
	connSilent       // DISCONNECTED was reported because the peer does not answer keep-alive
	connDisconnected // DISCONNECTED was reported because the peer answered our DREQ, or did not
	connRefused      // this side refused, or could not accept
	connFailed       // REJECTED, UNREACHABLE or ADDR_ERROR was reported
	connBroken       // CONNECT_ERROR was reported; the peer's answer to our REJ is not
)

var connStateNames = [...]string{
	"none", "requesting", "responded", "requested", "accepted", "established",
	"peer left", "silent", "disconnected", "refused", "failed", "broken",
}

// String is the state's name.
func (s connState) String() string { return connStateNames[s] }

// over reports whether nothing more comes of the connection but TIMEWAIT_EXIT.
func (s connState) over() bool { return s >= connPeerLeft }

// connInput is a call or an event of the machine that changes the state of a connection.
type connInput uint8

const (
	inConnect     connInput = iota // Connect has sent the request
	inResponse                     // REP for an ID without QP
	inReply                        // REP, and the QP is in RTS and the RTU sent; or SIDR_REP with a QPN
	inEstablish                    // Establish has sent the RTU
	inRequest                      // a REQ or SIDR_REQ made the ID
	inAccept                       // Accept has sent the answer
	inRefuse                       // Reject has sent the answer, or Accept has failed
	inEstablished                  // RTU, or Notify
	inRejected                     // REJ, or SIDR_REP without a QPN
	inTimeout                      // no answer to REQ, REP or SIDR_REQ
	inBroken                       // REP, but the QP cannot be connected
	inDREQ                         // DREQ, or the peer's process has died
	inDREP                         // DREP, or no answer to the DREQ
	inSilent                       // no answer to keep-alive
	connInputs                     // the number of inputs
)

var connInputNames = [connInputs]string{
	"Connect", "response", "reply", "Establish", "request", "Accept", "refuse", "established", "rejected", "timeout",
	"broken",
	"DREQ", "DREP", "silence",
}

// String is the input's name.
func (in connInput) String() string { return connInputNames[in] }

// connTable is the state machine: the next state for each input. An input that a state does not list changes nothing,
// and its event is not reported. So DISCONNECTED is reported once, and nothing follows CONNECT_ERROR.
var connTable = [...]map[connInput]connState{
	connNone: {
		inConnect: connRequesting,
		inRequest: connRequested,
	},
	connRequesting: {
		inReply:    connEstablished,
		inResponse: connResponded,
		inRejected: connFailed,
		inTimeout:  connFailed,
		inBroken:   connBroken,
	},
	connResponded: {
		inEstablish: connEstablished,
		inRefuse:    connRefused,
		inRejected:  connFailed,
	},
	connRequested: {
		inAccept:   connAccepted,
		inRefuse:   connRefused,
		inRejected: connFailed, // the peer withdraws its request
	},
	connAccepted: {
		inEstablished: connEstablished,
		inRejected:    connFailed,
		inTimeout:     connFailed,
		inDREQ:        connPeerLeft, // of a kernel, which reports no ESTABLISHED then
	},
	connEstablished: {
		inDREQ:     connPeerLeft,
		inDREP:     connDisconnected,
		inSilent:   connSilent,
		inRejected: connFailed,
	},
	connRefused: {
		inRejected: connFailed, // was under way when this side refused
	},
	connPeerLeft:     {},
	connSilent:       {},
	connDisconnected: {},
	connFailed:       {},
	connBroken:       {},
}

// step takes an input. It reports whether the state lists it.
func (c *connection) step(in connInput) bool {
	next, ok := connTable[c.conn][in]
	if ok {
		c.conn = next
		if next != connRequesting {
			c.asked = nil
		}
		if next.over() {
			c.endWaits()
		}
	}
	return ok
}

// endWaits ends the waits for completions.
func (c *connection) endWaits() {
	for cancel := range c.waiting {
		(*cancel)()
	}
}

// report takes an input and reports its event, unless the connection's state does not list the input.
//
// +checklocks:id.mu
func (id *ID) report(in connInput, ev *Event) {
	if id.step(in) {
		id.push(ev)
	}
}

// learn takes over what the machine knows of the peer's QP and the path.
//
// +checklocks:id.mu
func (id *ID) learn() {
	id.attrs, id.cmPath = id.dev.cm.attrs(id.cmid)
	id.respRes = least(id.attrs.MaxDestRdAtomic, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(id.attrs.MaxRdAtomic, id.dev.attr.MaxQPInitRdAtom)
}

// connParam is the peer's offer, seen from this side.
//
// +checklocks:id.mu
func (id *ID) connParam(private []byte) ConnParam {
	return ConnParam{
		PrivateData: private, ResponderResources: id.attrs.MaxDestRdAtomic, InitiatorDepth: id.attrs.MaxRdAtomic,
		QPNum: id.attrs.DestQPN,
	}
}

// least is a number of READs, or the device's maximum if that is smaller.
func least(n uint8, limit int) uint8 { return uint8(min(int(n), limit)) }

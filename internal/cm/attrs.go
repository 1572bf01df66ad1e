package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// Attrs is the attributes of this end's QP, as the two messages that make a connection define them: the parameters of
// ibv_modify_qp on the way to RTR and RTS (ib_cm_init_qp_attr). Retry counts, depths and PSNs are those of this end.
type Attrs struct {
	Transport cmmsg.Transport
	MTU       uint8  // path MTU, 1 (256 bytes) to 5 (4096)
	DestQPN   uint32 // the peer's QP
	RQPSN     uint32 // the peer's first PSN, which this end has chosen
	SQPSN     uint32 // this end's first PSN, which the peer has chosen

	MaxDestRdAtomic uint8 // READs and atomics taken from the peer at a time: responder resources
	MaxRdAtomic     uint8 // READs and atomics outstanding at the peer: initiator depth
	Timeout         uint8 // local ACK timeout, a time code
	RetryCount      uint8
	RNRRetry        uint8 // 7 means no limit
}

// Attrs is complete on the passive side when a request has come (with the depths that Accept has as defaults), on the
// active side when the reply has come.
func (id *ID) Attrs() Attrs {
	return Attrs{
		Transport: id.transport, MTU: id.path.MTU, DestQPN: id.remoteQPN, RQPSN: id.localPSN, SQPSN: id.remotePSN,
		MaxDestRdAtomic: id.respResources, MaxRdAtomic: id.initDepth, Timeout: id.ackTimeout,
		RetryCount: id.retryCount, RNRRetry: id.rnrRetry,
	}
}

// LocalPSN is the starting PSN that this end chooses for the peer, random for each ID.
func (id *ID) LocalPSN() uint32 { return id.localPSN }

const millisecond = 1_000_000

// maxCode is the longest time that a peer can ask for, 68.7 s.
const maxCode = 24

// wait is the time of a time code, 4.096 us * 2^n, rounded as Linux does: 2^(n-8) milliseconds, at least 1.
func wait(code uint8) int64 { return millisecond << (max(min(code, 31), 8) - 8) }

// peerWait is wait for a code from a peer, limited to maxCode.
func peerWait(code uint8) int64 { return wait(min(code, maxCode)) }

// AckTimeout is the code of a QP's local ACK timeout: twice the packet life time plus the ACK delay of the answering
// device. Both are time codes, and so is the result, at most 31.
func AckTimeout(delay, lifeTime uint8) uint8 {
	d, t := int(delay), int(lifeTime)+1 // there and back
	// the sum of two powers of two, rounded: the larger, or twice that if they are near each other
	switch {
	case t >= d && d >= t-1:
		t++
	case t < d && t >= d-1:
		t = d + 1
	case t < d:
		t = d
	}
	return uint8(min(t, 31))
}

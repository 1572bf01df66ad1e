package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// Attrs is what the two messages that make a connection say about the QP of this end: what ibv_modify_qp takes on
// the way to RTR and RTS (ib_cm_init_qp_attr). Numbers of retries have already changed sides, as have depths and PSNs.
type Attrs struct {
	Transport cmmsg.Transport
	MTU       uint8  // path MTU, 1 (256 bytes) to 5 (4096)
	DestQPN   uint32 // the peer's QP
	RQPSN     uint32 // the PSN that the peer begins with: what this end told it
	SQPSN     uint32 // the PSN to begin with: what the peer told this end

	MaxDestRdAtomic uint8 // READs and atomics taken from the peer at a time: responder resources
	MaxRdAtomic     uint8 // READs and atomics outstanding at the peer: initiator depth
	Timeout         uint8 // local ACK timeout, a time code
	RetryCount      uint8
	RNRRetry        uint8 // 7 is for ever
}

// Attrs is complete on the passive side once a request has come (with the depths that Accept will answer with if it is told
// nothing else), on the active side once the reply has come.
func (id *ID) Attrs() Attrs {
	return Attrs{
		Transport: id.transport, MTU: id.path.MTU, DestQPN: id.remoteQPN, RQPSN: id.localPSN, SQPSN: id.remotePSN,
		MaxDestRdAtomic: id.respResources, MaxRdAtomic: id.initDepth, Timeout: id.ackTimeout,
		RetryCount: id.retryCount, RNRRetry: id.rnrRetry,
	}
}

// LocalPSN is the starting PSN that the peer was told or will be told, chosen at random for each ID.
func (id *ID) LocalPSN() uint32 { return id.localPSN }

const millisecond = 1_000_000

// maxCode is the longest time that a peer may make us wait, 68.7 s.
const maxCode = 24

// wait is the time that a code stands for, 4.096 us * 2^n, as Linux rounds it: 2^(n-8) milliseconds, at least one.
func wait(code uint8) int64 { return millisecond << (max(min(code, 31), 8) - 8) }

// peerWait is wait for a code that came from a peer, which is not trusted with more than maxCode.
func peerWait(code uint8) int64 { return wait(min(code, maxCode)) }

// AckTimeout is the code of a QP's local ACK timeout: twice the packet life time plus the time that
// the answering device takes. Both are time codes, and so is the result, at most 31.
func AckTimeout(delay, lifeTime uint8) uint8 {
	d, t := int(delay), int(lifeTime)+1 // there and back
	switch {                            // the sum of two powers of two, rounded: the larger, or twice that if they are near each other
	case t >= d && d >= t-1:
		t++
	case t < d && t >= d-1:
		t = d + 1
	case t < d:
		t = d
	}
	return uint8(min(t, 31))
}

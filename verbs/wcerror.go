package verbs

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// WCError is the story of a failed work request, for the person who must find out why. WC.Err returns it.
type WCError struct {
	Status    WCStatus
	QPN       uint32
	DestQPN   uint32        // of the peer's QP; 0 if there is none
	Peer      string        // the peer's address; empty if there is none
	Reason    string        // one clause: "no acknowledgement"
	Syndrome  uint8         // of the peer's NAK; 0 if there was none
	LastSent  uint32        // the last PSN sent
	LastAck   uint32        // the last PSN that the peer acknowledged
	Retries   int           // resends before giving up
	Elapsed   time.Duration // since the request was first sent
	Heard     bool          // whether any packet ever came back from the peer
	PeerEnded bool          // the peer was a process of this host, which has ended
	// Refused is why this host would not send a packet since the last acknowledgement, 0 if it sent all; EMSGSIZE says that the MTU of the
	// interface or the route is too small. errors.Is finds it.
	Refused    Errno
	RefusedLen int      // of that packet: bytes, IP header first
	First      *WCError // of a flushed request: what broke its QP; nil if it was moved to ERR by QP.Modify
}

// Err is nil if the request succeeded, else a *WCError.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	if wc.Cause != nil {
		return wc.Cause
	}
	return &WCError{Status: wc.Status, QPN: wc.QPNum}
}

// Error tells the status, the peer, what happened and what to look at, in one line.
func (e *WCError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "work completion %s (%s) of QP 0x%06x", e.Status.Name(), e.Status, e.QPN)
	if e.Peer != "" {
		fmt.Fprintf(&b, " with %s", e.Peer)
		if e.DestQPN != 0 {
			fmt.Fprintf(&b, " QP 0x%06x", e.DestQPN)
		}
	}
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	if e.Retries > 0 || e.Elapsed > 0 {
		fmt.Fprintf(&b, "; sent %s in %v, last PSN 0x%06x, acknowledged 0x%06x", times(e.Retries+1), e.Elapsed.Round(time.Microsecond), e.LastSent, e.LastAck)
		if !e.Heard {
			b.WriteString(", nothing ever came back")
		}
	}
	if e.Refused != 0 {
		fmt.Fprintf(&b, "; this host would not send a packet of %d bytes: %v", e.RefusedLen, e.Refused)
		if name := errnoNames[e.Refused]; name != "" {
			b.WriteString(" (" + name + ")")
		}
	}
	if hint := e.Hint(); hint != "" {
		b.WriteString("; " + hint)
	}
	if e.First != nil {
		fmt.Fprintf(&b, "; first failure: %v", e.First)
	}
	return b.String()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Hint is a clause on what to look at; empty if there is nothing to say.
func (e *WCError) Hint() string {
	switch e.Status {
	case WCLocLenErr:
		return "receives have to be as long as the longest message, for UD 40 bytes longer, for the GRH; UD messages have at most the path MTU"
	case WCLocQPOpErr:
		return "check opcode and SGE lengths of the request"
	case WCLocProtErr, WCLocAccessErr:
		return "check the SGEs: lkey, range, protection domain, and AccessLocalWrite for what is written to"
	case WCWRFlushErr:
		if e.First == nil {
			return "the QP was moved to ERR, or a request before this one failed: look at its completion"
		}
	case WCRemInvReqErr:
		return "whoever was asked admits no such request: the QP's access flags, the receive buffer's length, 8-byte alignment of atomics, packets in order"
	case WCRemAccessErr:
		return "check rkey, remote address and length, and the remote rights of the peer's region and QP"
	case WCRemOpErr:
		return "the peer failed by itself: look at its completions"
	case WCRetryExcErr:
		switch {
		case e.PeerEnded:
			return "look at its output, and at its exit status"
		case e.Refused != 0:
			return e.refusedHint()
		}
		if e.Heard {
			return "the peer stopped answering: did it close its QP or move it to ERR?"
		}
		return "is the peer up, its QP in RTR with our QPN and GID, and UDP port 4791 open between the two?"
	case WCRNRRetryExcErr:
		return "the peer posts its receives too late; RNRRetry 7 waits for ever"
	}
	return ""
}

func (e *WCError) refusedHint() string {
	switch e.Refused {
	case syscall.EMSGSIZE:
		return "the MTU of the interface or the route is too small for the QP's path MTU: connect with a smaller one, or raise it; ip link and ip route get PEER show it"
	case syscall.EPERM, syscall.EACCES:
		return "does a firewall of this host forbid it? nft list ruleset"
	case syscall.EADDRNOTAVAIL:
		return "the QP's own address is no more one of this host: ip addr"
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN:
		return "there is no way to the peer: ip route get PEER"
	}
	return ""
}

// Unwrap gives the status, the errno of a packet that was not sent and, of a flushed request, the first failure, so that errors.Is finds them.
func (e *WCError) Unwrap() []error {
	list := []error{e.Status}
	if e.Refused != 0 {
		list = append(list, e.Refused)
	}
	if e.First != nil {
		list = append(list, e.First)
	}
	return list
}

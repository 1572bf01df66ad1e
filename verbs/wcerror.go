package verbs

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// WCError describes a failed work request. WC.Err returns it.
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
	Heard     bool          // a packet came back from the peer
	PeerEnded bool          // the peer was a process of this host that has ended
	Stream    bool          // the QP is connected by TCP (iWARP)
	// Refused is the errno of the last packet that this host did not send since the last acknowledgement; 0 if it
	// sent all. EMSGSIZE: the MTU of the interface or the route is too small. ECONNREFUSED and EHOSTUNREACH: it was
	// sent, and an ICMP message says that it did not arrive. errors.Is finds it.
	Refused    Errno
	RefusedLen int // of that packet: bytes, IP header first
	RouteMTU   int // MTU in bytes of the system's route to the peer, for EMSGSIZE; 0 if it is not known
	Payload    int // of the longest packet of a request without an answer, or of its response: bytes, without headers
	// First is the first failure of the QP of a flushed request; over iWARP also the reason why the stream broke:
	// WCFatalErr for what the peer sent, or an end within a message, WCRetryExcErr if TCP has given up. It is nil if
	// QP.Modify or the end of the connection moved the QP to ERR.
	First *WCError
}

// Err returns nil if the request succeeded, else a *WCError.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	if wc.Cause != nil {
		return wc.Cause
	}
	return &WCError{Status: wc.Status, QPN: wc.QPNum}
}

// Error returns the status, the peer, the cause and a hint, in one line.
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
		fmt.Fprintf(&b, "; sent %s in %v, last PSN 0x%06x, acknowledged 0x%06x", times(e.Retries+1),
			e.Elapsed.Round(time.Microsecond), e.LastSent, e.LastAck)
		if !e.Heard {
			b.WriteString(", nothing ever came back")
		}
	}
	if e.Refused != 0 {
		what := "this host would not send a packet"
		if e.Refused == syscall.ECONNREFUSED || e.Refused == syscall.EHOSTUNREACH {
			what = "the network did not deliver a packet"
		}
		fmt.Fprintf(&b, "; %s of %d bytes: %v", what, e.RefusedLen, e.Refused)
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

// Hint returns a clause on possible causes and checks; it may be empty.
func (e *WCError) Hint() string {
	switch e.Status {
	case WCLocLenErr:
		return "a receive must be as long as the longest message, on UD 40 bytes longer (GRH); UD messages have at most " +
			"the path MTU"
	case WCLocQPOpErr:
		return "check opcode and SGE lengths of the request"
	case WCLocProtErr, WCLocAccessErr:
		return "check the SGEs: lkey, range, protection domain, and AccessLocalWrite for what is written to"
	case WCWRFlushErr:
		if e.First == nil && e.Reason == "" {
			return "the QP was moved to ERR, or a request before this one failed: look at its completion"
		}
	case WCRemInvReqErr:
		return "the responder refused the request: check that both QPs have the same path MTU, the access flags of its QP, " +
			"the receive buffer's length, 8-byte alignment of atomics, and the order of packets"
	case WCRemAccessErr:
		return "check rkey, remote address and length, and the remote rights of the peer's region and QP"
	case WCRemOpErr:
		return "the peer failed by itself: look at its completions"
	case WCRetryExcErr:
		switch {
		case e.PeerEnded:
			return "look at its output, and at its exit status"
		case e.Stream:
			return "TCP has given up: is the peer's host up, and does a router or a firewall on the way drop the segments?"
		case e.Refused != 0:
			return e.refusedHint()
		}
		hint := "is the peer up, its QP in RTR with our QPN and GID, and UDP port 4791 open between the two?"
		if e.Heard {
			hint = "the peer stopped answering: did it close its QP or move it to ERR?"
		}
		return hint + e.lengthHint()
	case WCRNRRetryExcErr:
		return "the peer posts its receives too late; RNRRetry 7 waits for ever"
	}
	return ""
}

// lengthHint is a clause on packets that a link of the path may not carry; empty for short ones, which every link
// carries.
func (e *WCError) lengthHint() string {
	const headers, every = 80, 1024
	if e.Payload <= every {
		return ""
	}
	return fmt.Sprintf(" If shorter messages arrive, a link on the way has too small an MTU for packets of %d bytes and "+
		"no router says so: connect with path MTU 1024 or less", e.Payload+headers)
}

func (e *WCError) refusedHint() string {
	switch e.Refused {
	case syscall.EMSGSIZE:
		if e.RouteMTU > 0 && e.RouteMTU < e.RefusedLen {
			return fmt.Sprintf("the MTU of the route to the peer is %d: connect with a smaller path MTU, which a new "+
				"connection of package rdmacm does by itself; ip route get %s shows it", e.RouteMTU, e.Peer)
		}
		return "the MTU of the interface or the route is too small for the QP's path MTU: connect with a smaller one, " +
			"or raise it; ip link and ip route get PEER show it"
	case syscall.EPERM, syscall.EACCES:
		return "does a firewall of this host forbid it? nft list ruleset"
	case syscall.ECONNREFUSED:
		return "the peer's host answers that UDP port 4791 is closed, or a firewall rejects it (ICMP): has its program ended?"
	case syscall.EADDRNOTAVAIL:
		return "this host no longer has the QP's address: ip addr"
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN:
		return "there is no route to the peer: ip route get PEER"
	}
	return ""
}

// Unwrap returns the status, the errno of a packet that was not sent and, for a flushed request, the first failure,
// so that errors.Is finds them.
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

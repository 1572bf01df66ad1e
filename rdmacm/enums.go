package rdmacm

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// PortSpace is a family of port numbers and the service that goes with it (enum rdma_port_space). Port spaces do not
// share numbers with each other, nor with the kernel's TCP and UDP.
type PortSpace uint16

// The port spaces (RDMA_PS_*).
const (
	PSIPoIB PortSpace = 0x0002 // datagrams of IP over InfiniBand
	PSTCP   PortSpace = 0x0106 // reliable connections; messages, not a stream
	PSUDP   PortSpace = 0x0111 // datagrams and multicast
	PSIB    PortSpace = 0x013F // any service
)

// String is the name without RDMA_PS_.
func (ps PortSpace) String() string {
	switch ps {
	case PSIPoIB:
		return "IPOIB"
	case PSTCP:
		return "TCP"
	case PSUDP:
		return "UDP"
	case PSIB:
		return "IB"
	}
	return fmt.Sprintf("port space %#x", uint16(ps))
}

func (ps PortSpace) valid() bool { return ps == PSIPoIB || ps == PSTCP || ps == PSUDP || ps == PSIB }

// service is the service ID of a port.
func (ps PortSpace) service(port uint16) cmmsg.ServiceID { return cmmsg.PortSpace(ps).Service(port) }

// defaultQPType is what IDs of the port space connect.
func (ps PortSpace) defaultQPType() verbs.QPType {
	if ps == PSUDP || ps == PSIPoIB {
		return verbs.QPTypeUD
	}
	return verbs.QPTypeRC
}

// EventType is the type of an Event (enum rdma_cm_event_type).
type EventType uint32

// The events (RDMA_CM_EVENT_*).
const (
	EventAddrResolved     EventType = 0  // ResolveAddr has succeeded
	EventAddrError        EventType = 1  // ResolveAddr has failed; it may be called again
	EventRouteResolved    EventType = 2  // ResolveRoute has succeeded
	EventRouteError       EventType = 3  // ResolveRoute has failed; it may be called again
	EventConnectRequest   EventType = 4  // a client wants to connect: ID is new, Accept or Reject it
	EventConnectResponse  EventType = 5  // the peer has accepted an ID without QP: Establish it
	EventConnectError     EventType = 6  // the QP could not be connected
	EventUnreachable      EventType = 7  // the peer does not answer, or no datagram service is there
	EventRejected         EventType = 8  // the peer has refused; Status is the reason of its REJ
	EventEstablished      EventType = 9  // the connection is made, or the datagram service is found
	EventDisconnected     EventType = 10 // the connection has ended
	EventDeviceRemoval    EventType = 11 // the device has gone: Close the ID
	EventMulticastJoin    EventType = 12 // JoinMulticast has succeeded
	EventMulticastError   EventType = 13 // JoinMulticast has failed, or the group is lost
	EventAddrChange       EventType = 14 // the device's network address has changed; a hint
	EventTimewaitExit     EventType = 15 // the QP may have a new connection
	EventAddrInfoResolved EventType = 16 // ResolveAddrInfo has succeeded: QueryAddrInfo (RDMA_CM_EVENT_ADDRINFO_RESOLVED)
	EventAddrInfoError    EventType = 17 // ResolveAddrInfo has failed
	EventUser             EventType = 18 // of WriteEvent
)

var eventNames = [...]string{
	"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",
	"UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR",
	"ADDR_CHANGE", "TIMEWAIT_EXIT", "ADDRINFO_RESOLVED", "ADDRINFO_ERROR", "USER",
}

// String is the C name (rdma_event_str): "RDMA_CM_EVENT_ESTABLISHED"; "UNKNOWN EVENT" for an undefined value.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[t]
	}
	return "UNKNOWN EVENT"
}

const (
	// MaxRespRes and MaxInitDepth stand for the most that the device can (RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH).
	MaxRespRes   = 0xFF
	MaxInitDepth = 0xFF

	// UDPQKey is the Q_Key of the QPs of datagram IDs and of multicast groups (RDMA_UDP_QKEY).
	UDPQKey = 0x01234567

	// MulticastQPN is the QP number to which messages to a group are sent.
	MulticastQPN = 0xFFFFFF
)

// state is where an ID is (the kernel's enum rdma_cm_state, with its values).
type state uint8

const (
	stIdle state = iota
	stAddrQuery
	stAddrResolved
	stRouteQuery
	stRouteResolved
	stConnect
	stDisconnect
	stAddrBound
	stListen
	stRemoved
	stDestroying
)

var stateNames = [...]string{
	"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT", "DISCONNECT", "ADDR_BOUND",
	"LISTEN",
	"DEVICE_REMOVAL", "DESTROYING",
}

func (s state) String() string { return stateNames[s] }

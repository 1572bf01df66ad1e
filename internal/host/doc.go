// Package host lets the processes of one host use the same RoCEv2 address at the same time, as they would with an adapter.
//
// The receive sockets of an address form a group (SO_REUSEPORT) that every process holds descriptors of: a socket for each
// of 64 lanes, and one for QP 1. A lane is the upper six bits of a QP number, and the kernel chooses the socket by them; a process has
// lanes of its own, takes the numbers of its QPs from them, and reads nothing but their sockets. Since everybody holds all
// sockets, none closes when a process dies, and the group never changes.
//
//	leader    a socket of whoever reads QP 1 and hands the descriptors to newcomers; a process that loses its leader
//	          tries to become it, and what has arrived meanwhile is in the socket still
//	lane-N    a datagram socket of the process that has lane N: the claim to the lane, and its mailbox
//	svc-ID    the same for a process that listens on a service ID
//
// Beside the descriptors everybody gets one of memory, the estate, in which each process leaves what shall be sent should it die.
//
// These are abstract unix sockets, which span a network namespace, as addresses do, and end with their process. Both ends of each
// exchange check that the other has the same user. Where Share has made a folder they are files in it, each with a lock that ends with its
// process, and the folder's permissions decide who may take part.
//
// The leader looks into management datagrams: a request belongs to the process that listens on its service ID, everything else to
// the one whose lane is in the upper bits of the receiver's communication ID. What is not its own it forwards to the mailbox.
//
// An adapter that merges datagrams (GRO) puts those of one source port together, whatever their QP numbers, and the kernel then chooses the
// socket by the first of them. So every process forwards what its sockets should not have got, in the same way.
//
// The package imports the standard library, golang.org/x/sys and internal/wire.
package host

import "github.com/verbena-rdma/verbena/internal/wire"

// LaneBits is how many of the upper bits of a QP number, and of a communication ID, name the lane.
const (
	LaneBits = 6
	Lanes    = 1 << LaneBits

	// GSI is the index of the socket of QP 1 in the group, behind those of the lanes.
	GSI = Lanes

	laneShift = 24 - LaneBits
)

// LaneOf is the lane of a QP number.
func LaneOf(qpn uint32) int { return int(qpn >> laneShift & (Lanes - 1)) }

// SocketOf is the index in the group of the socket to which packets for a QP number come.
func SocketOf(qpn uint32) int {
	if qpn == wire.GSIQPN || qpn == wire.MulticastQPN {
		return GSI
	}
	return LaneOf(qpn)
}

// QPNs are the first and the last QP number of a lane.
func QPNs(lane int) (first, last uint32) {
	first = uint32(lane) << laneShift
	return first, first + 1<<laneShift - 1
}

// CommIDs are the upper bits that communication IDs of a lane have, and how many bits that is.
func CommIDs(lane int) (prefix uint32, bits int) { return uint32(lane) << (32 - LaneBits), LaneBits }

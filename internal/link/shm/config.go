package shm

import (
	"net"
	"net/netip"
	"os"
)

// A Directory finds the processes of this host. Its methods may be called by any goroutine.
type Directory interface {
	// Owner returns the name of the process that receives packets for QP qpn at addr; "" if no process of this
	// host is known to. It does not block. Dial finds out whether the process runs and accepts connections.
	Owner(addr netip.Addr, qpn uint32) string
	// Dial connects to a process without blocking. The process passes its end of the connection to Accept of its
	// Link.
	Dial(name string) (*net.UnixConn, error)
}

// A Follower is a Directory that accepts connections.
type Follower interface {
	// Follow passes connections to the owners of these addresses, which belong to this process, to accept from
	// now on. Without addresses it stops that.
	Follow(addrs []netip.Addr, accept func(*net.UnixConn))
}

// A PostOffice is a Directory that knows which process a management datagram is for.
type PostOffice interface {
	// Recipient returns a QP number of the process that receives a packet for QP 1, BTH to pad, as Owner takes it, and
	// the number of the connection there, not 0. ok is false if they are not known from the packet.
	Recipient(pkt []byte) (qpn, conn uint32, ok bool)
}

// Enabled reports whether the environment allows shared memory: VERBENA_SHM=0 disables it.
func Enabled() bool { return os.Getenv("VERBENA_SHM") != "0" }

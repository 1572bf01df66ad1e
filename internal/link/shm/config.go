package shm

import (
	"net"
	"net/netip"
	"os"
)

// A Directory knows the processes of this host. Its methods may be called by any goroutine.
type Directory interface {
	// Owner names the process to which packets for QP qpn at addr go; "" if that is not known to be one of this host. It does not
	// block. A name is enough for Dial; whether the process is there, and may be talked to, Dial finds out.
	Owner(addr netip.Addr, qpn uint32) string
	// Dial connects to a process, at once or not at all. That passes its end of the connection to its Link's Accept.
	Dial(name string) (*net.UnixConn, error)
}

// A Follower is a Directory that takes connections by itself.
type Follower interface {
	// Follow has connections to the processes that own these addresses, which is us, passed to accept from now on. Without addresses
	// it ends that.
	Follow(addrs []netip.Addr, accept func(*net.UnixConn))
}

// Enabled tells whether the environment allows shared memory: VERBENA_SHM=0 switches it off.
func Enabled() bool { return os.Getenv("VERBENA_SHM") != "0" }

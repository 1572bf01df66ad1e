package rsocket

import (
	"time"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
	"github.com/verbena-rdma/verbena/verbs"
)

// Options are the sizes of a stream. Each end has its own. 0 stands for the default: the value of the
// configuration file, or the number below without one. Values outside the range are brought into it.
type Options struct {
	SendBuf int // bytes of the send buffer, at least 4096; default 131072
	RecvBuf int // bytes of the receive buffer, at most 2^33 - 2, rounded down to an even number; default 131072
	SQSize  int // entries of the send queue, 16 to 65534; default 384
	RQSize  int // messages that the peer may have under way, 16 to 65534; default 384
	Inline  int // bytes of data that are copied into a request; default 64
	IOMaps  int // IO maps that the peer may publish, 0 to 32512; default 0
	// Polling is the spin budget: how long a call polls before it sleeps. The default is 10 us, and up to 300 us while
	// answers come within that; another value is exact. A value below 0 turns polling off.
	Polling time.Duration
	// PathMTU fixes the path MTU (RDMA_ROUTE): a Dialer asks for it and no less, a listener refuses clients that ask for
	// more. 0 stands for what the port and the route allow; a Dialer then takes less if the peer cannot have that.
	PathMTU verbs.MTU
}

// withDefaults fills in the fields that are zero.
func (o Options) withDefaults() sock.Options { return sock.Options(o).WithDefaults() }

// SetConfigDir sets the folder of the configuration files. The files are read once, when the first socket is made:
// a later call changes nothing. The environment variable VERBENA_RSOCKET_CONFIG has precedence.
//
// The files are mem_default, wmem_default, sqsize_default, rqsize_default, inline_default, iomap_size,
// polling_time (in microseconds) and wake_up_interval (in milliseconds), each with one decimal number. Without a
// call the folder is /etc/rdma/rsocket.
func SetConfigDir(dir string) { sock.SetConfigDir(dir) }

package conformance

import (
	"net/netip"
	"runtime/debug"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Setup is the argument of Run.
type Setup struct {
	// Name is the name of the subtest that contains all cases, for example "mem".
	Name string
	// New returns a network without devices. It registers its cleanup with tb.Cleanup.
	New func(tb testing.TB) Network
	// MaxQueue bounds the entries of the largest queues that cases make, for devices whose own limits exceed the memory
	// of small machines. 0: the limits of the device.
	MaxQueue uint64
	// Adapter says that the device is one behind libibverbs: its memory is copied in words of 4 bytes, XRC QPs ignore
	// the attributes of the other direction, and a request for an event counts completions that are not polled.
	Adapter bool
}

// Network is the network of one case. It is used by one goroutine.
type Network interface {
	// Open creates a device with an address of its own and opens it. All devices of a network reach each
	// other.
	Open() *verbs.Context
	// Addr returns the address of a device that Open created.
	Addr(ctx *verbs.Context) netip.Addr
	// Group returns the address of a multicast group that no other test uses.
	Group() netip.Addr
	// Host returns a host without a device that sends and receives raw packets at an address of its own.
	Host() Host
	// Forger returns a host that sends raw packets from a device's address. It receives nothing.
	Forger(ctx *verbs.Context) Host
	// Await lets time pass until done returns true, and reports whether it did. It gives up when clearly
	// more than limit has passed; how much more depends on the network's clock.
	Await(done func() bool, limit time.Duration) bool
	// Pause lets time pass to see that nothing happens. It may be shorter if nothing can happen any more.
	Pause(d time.Duration)
	// Counter returns a device's counter by its kernel name.
	Counter(ctx *verbs.Context, name string) uint64
	// Lose sets the probability of packet loss.
	Lose(p float64)
}

// Host is a host without a device.
type Host interface {
	Addr() netip.Addr
	// Seal appends the ICRC of pkt, from BTH to pad, for a datagram to dst.
	Seal(dst netip.Addr, pkt []byte) []byte
	// Send sends a datagram unchanged to the RoCEv2 port of dst.
	Send(dst netip.Addr, datagram []byte)
	// Recv returns the next packet for the host, from BTH to pad, with a correct ICRC; nil if there is
	// none.
	Recv() []byte
}

// testCase is one case. Its name begins with the statements that it proves.
type testCase struct {
	name string
	run  func(t *T)
}

// T is a running case.
type T struct {
	*testing.T
	Network
	maxQueue uint64 // of Setup
	adapter  bool   // of Setup
}

// Run runs every case as a subtest.
func Run(t *testing.T, s Setup) {
	t.Run(s.Name, func(t *testing.T) {
		for _, group := range [][]testCase{
			modelCases, transportCases, stateCases, drainCases, eventCases, queueCases, notifyCases, srqCases,
			qpCases, ruleCases, memoryCases, datagramCases, recvCases, sendCases, completionCases, statusCases(), answerCases(),
			badInputCases(), sizeCases(), rangeCases, transitionCases(), modifyCases(), rawRangeCases, postCases, builderCases,
			endCases, windowCases,
		} {
			for _, c := range group {
				t.Run(c.name, func(t *testing.T) {
					defer reportPanic(t)
					c.run(&T{t, s.New(t), s.MaxQueue, s.Adapter})
				})
			}
		}
	})
}

// reportPanic makes the panic of a case its failure, so that the other cases run.
func reportPanic(t *testing.T) {
	if v := recover(); v != nil {
		t.Errorf("panic: %v\n%s", v, debug.Stack())
	}
}

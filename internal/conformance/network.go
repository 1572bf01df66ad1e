package conformance

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Setup is what a test gives to Run.
type Setup struct {
	// Name of the subtest that all cases are in: "mem".
	Name string
	// New makes a network without devices. What it opens it closes in tb.Cleanup.
	New func(tb testing.TB) Network
}

// Network is where the devices of one case live. One goroutine uses it.
type Network interface {
	// Open makes a device with an address of its own and opens it. All devices of a network reach each other.
	Open() *verbs.Context
	// Addr is the address of a device that Open made.
	Addr(ctx *verbs.Context) netip.Addr
	// Group is the address of a multicast group that nobody else uses.
	Group() netip.Addr
	// Host is a machine without a device, which sends and sees raw packets at an address of its own.
	Host() Host
	// Forger sends raw packets from a device's address, behind its back. It receives nothing.
	Forger(ctx *verbs.Context) Host
	// Await lets time pass until done says true, and tells whether it did. It gives up when much more than limit has
	// passed; how much depends on how well the network keeps time.
	Await(done func() bool, limit time.Duration) bool
	// Pause lets time pass for what should not happen. It may be shorter if nothing can happen any more.
	Pause(d time.Duration)
	// Counter is a device's counter under its kernel's name.
	Counter(ctx *verbs.Context, name string) uint64
	// Lose makes the network lose packets with a probability from now on.
	Lose(p float64)
}

// Host is a machine without a device.
type Host interface {
	Addr() netip.Addr
	// Seal appends the ICRC that makes pkt, BTH to pad, a datagram to dst.
	Seal(dst netip.Addr, pkt []byte) []byte
	// Send sends a datagram to the RoCEv2 port of dst as it is.
	Send(dst netip.Addr, datagram []byte)
	// Recv is the next packet, BTH to pad, that came to the host, nil if there is none. Its ICRC was right.
	Recv() []byte
}

// testCase is one case. Its name begins with the statements that it holds.
type testCase struct {
	name string
	run  func(t *T)
}

// T is a running case.
type T struct {
	*testing.T
	Network
}

// Run runs every case as a subtest.
func Run(t *testing.T, s Setup) {
	t.Run(s.Name, func(t *testing.T) {
		for _, group := range [][]testCase{
			modelCases, transportCases, stateCases, drainCases, eventCases, queueCases, notifyCases, srqCases,
			qpCases, ruleCases, memoryCases, datagramCases, recvCases, sendCases, completionCases, statusCases(), answerCases(),
			badInputCases(), sizeCases(), rangeCases, transitionCases(), modifyCases(), rawRangeCases, postCases, builderCases, endCases, windowCases,
		} {
			for _, c := range group {
				t.Run(c.name, func(t *testing.T) { c.run(&T{t, s.New(t)}) })
			}
		}
	})
}

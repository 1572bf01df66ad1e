package socket

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// configured changes the values of the configuration files until the test is over.
func configured(t *testing.T, change func(*sock.Defaults)) {
	old := sock.Config
	d := sock.Config()
	change(&d)
	sock.Config = func() sock.Defaults { return d }
	t.Cleanup(func() { sock.Config = old })
}

// WakeUpEvery sets wake_up_interval until the test is over.
func WakeUpEvery(t *testing.T, d time.Duration) {
	configured(t, func(c *sock.Defaults) { c.WakeUp = d })
}

// TakeSendSlots takes all send slots of a datagram socket, when it knows the QP of a peer. release returns them.
func (s *Socket) TakeSendSlots() (release func() error) { return s.dg.TakeSendSlots() }

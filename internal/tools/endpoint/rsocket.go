package endpoint

import (
	"context"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/rsocket"
)

// RSockets configures the rsocket listener of the second process.
type RSockets struct {
	At      netip.Addr
	Options rsocket.Options
}

// RSocket serves rsockets as TCP serves TCP connections, until the process ends. It returns the port.
func (s *Second) RSocket(a RSockets, port *uint16) error {
	l, err := (&rsocket.ListenConfig{Options: a.Options, KeepAlive: -1}).Listen(context.Background(), "tcp",
		netip.AddrPortFrom(a.At, 0).String())
	if err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	*port = at.Port()
	go duo.ServeStreams(l)
	return nil
}

// CPU returns the processor time of the process.
func (s *Second) CPU(_ None, t *time.Duration) (err error) {
	*t, err = CPU()
	return err
}

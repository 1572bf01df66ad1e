package rsocket_test

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
)

func overTCP(tb testing.TB) *places { return &places{socktest.OverTCP(tb)} }

// Over iWARP every byte arrives once and in order, in both directions at the same time.
func TestW_RS_10_W_RS_03_TransferOverTCP(t *testing.T) {
	for name, c := range map[string]struct {
		client, server rsocket.Options
		crc            string
		bytes          int
	}{
		"defaults":  {bytes: 3 << 20},
		"crc":       {bytes: 1 << 20, crc: "1"},
		"small":     {client: small, server: small, bytes: 1 << 17},
		"one_small": {server: small, bytes: 1 << 18},
		"odd": {client: rsocket.Options{RecvBuf: 4099, SendBuf: 5001, Inline: 1000},
			server: rsocket.Options{RecvBuf: 3}, bytes: 1 << 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("VERBENA_IWARP_CRC", c.crc)
			p := overTCP(t)
			a, b := p.pair(c.client, c.server)
			var both sync.WaitGroup
			both.Go(func() {
				if err := transfer(a, b, socktest.Text(c.bytes, 1), 1); err != nil {
					t.Error("to the server:", err)
				}
			})
			both.Go(func() {
				if err := transfer(b, a, socktest.Text(c.bytes, 2), 2); err != nil {
					t.Error("to the client:", err)
				}
			})
			both.Wait()
			p.OK(a.Close())
			p.OK(b.Close())
			p.Close()
		})
	}
}

// What was written before Close arrives, also if the closing side has not read what the peer has sent: TCP must not
// reset the connection then.
func TestCloseOverTCPWithUnreadData(t *testing.T) {
	p := overTCP(t)
	for i := range 20 {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		data := socktest.Text(100_000, uint64(i))
		must(b.Write(data[:5000]))(p)
		var sides sync.WaitGroup
		sides.Go(func() {
			must(a.Write(data))(p)
			p.OK(a.Close())
		})
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes of %d arrived, %v", len(got), len(data), err)
		}
		sides.Wait()
		p.OK(b.Close())
	}
	p.Close()
}

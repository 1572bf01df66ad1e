package rsocket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// inUse counts the goroutines of the process and, where the system lists them, its descriptors.
type inUse struct{ goroutines, fds int }

func usedNow() inUse {
	list, _ := os.ReadDir("/proc/self/fd")
	return inUse{runtime.NumGoroutine(), len(list)}
}

// nothingLeft runs do twice between hosts on loopback. The second run must leave no object of the hosts, no goroutine
// and no descriptor. The first run makes those that the process keeps.
func nothingLeft(t *testing.T, do func(p *places)) {
	t.Helper()
	once := func() {
		p := overUDP(t)
		do(p)
		p.Close()
	}
	once()
	runtime.GC() // what finalizers close
	before := usedNow()
	once()
	var after inUse
	for range 2000 { // the last of them may be on their way out
		if after = usedNow(); after.goroutines <= before.goroutines && after.fds <= before.fds {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	t.Errorf("before %+v, after %+v\n%s", before, after, stacks.String())
}

// Dials that fail, or are canceled at any time, leave nothing.
func TestFailedDialsLeaveNothing(t *testing.T) {
	nothingLeft(t, func(p *places) {
		refused := p.B.At(7471)
		l := p.listen(rsocket.Options{})
		other, err := rdmacm.Listen(bg, p.B.At(0), &rdmacm.Options{Host: p.B.Host, QP: caps})
		p.OK(err)
		d := p.dialer(rsocket.Options{})
		for range 5 {
			if _, err := d.Dial("tcp", refused); !errors.Is(err, syscall.ECONNREFUSED) {
				p.Errorf("without a listener: %v", err)
			}
		}
		for i := range 40 {
			to := l.Addr().String()
			if i%4 == 3 { // nobody ever answers there
				to = fmt.Sprintf("%v:%d", p.B.Addr, other.Addr().Port())
			}
			ctx, cancel := context.WithTimeout(bg, time.Duration(i)*50*time.Microsecond)
			conn, err := d.DialContext(ctx, "tcp", to)
			cancel()
			if err == nil {
				p.OK(conn.Close())
			} else if ne := net.Error(nil); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
				p.Errorf("canceled: %v", err)
			}
		}
		p.OK(l.Close())
		p.OK(other.Close())
	})
}

// A listener that is closed while clients connect leaves nothing, and no client blocks.
func TestListenerClosedWhileClientsConnect(t *testing.T) {
	nothingLeft(t, func(p *places) {
		for round := range 15 {
			l := p.listen(small)
			d := p.dialer(small)
			d.Timeout = 10 * time.Second
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					c, err := d.Dial("tcp", l.Addr().String())
					if err != nil {
						return
					}
					p.OK(c.SetDeadline(time.Now().Add(10 * time.Second)))
					if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
						p.Error("the client is not notified that the listener is closed")
					}
					p.OK(c.Close())
				})
			}
			time.Sleep(time.Duration(round) * 200 * time.Microsecond)
			p.OK(l.Close())
			clients.Wait()
		}
	})
}

// The same with a listening socket.Socket.
func TestListeningSocketClosedWhileClientsConnect(t *testing.T) {
	nothingLeft(t, func(p *places) {
		for round := range 10 {
			l := must(socket.NewOn(p.B.Host, socket.Inet, socket.SockStream, 0))(p)
			p.OK(l.Bind(netip.AddrPortFrom(p.B.Addr, 0)))
			p.OK(l.Listen(0))
			at := must(l.SockName())(p)
			d := p.dialer(small)
			d.Timeout = 10 * time.Second
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					if c, err := d.Dial("tcp", at.String()); err == nil {
						_ = c.Close()
					}
				})
			}
			time.Sleep(time.Duration(round) * 200 * time.Microsecond)
			p.OK(l.Close())
			clients.Wait()
		}
	})
}

// Connections that fail leave nothing: the peer violates the protocol, or stops answering.
func TestFailedConnectionsLeaveNothing(t *testing.T) {
	nothingLeft(t, func(p *places) {
		for range 5 {
			c, r := p.rawPair()
			r.say(rs.Word(rs.OpData, 5000), rs.SGE{}, nil)
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.EPROTO) {
				p.Errorf("%v", err)
			}
			p.OK(c.Close())
			r.close()
		}
	})
}

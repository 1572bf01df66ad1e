// Package rproxy is "verbena rproxy": it carries TCP connections over RDMA. One instance beside the clients
// accepts TCP connections and connects by rsocket to another instance beside the service, which connects to
// the service by TCP. It imports rsocket, internal/{winsock,tools/tool} and the standard library.
package rproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/winsock"
	"github.com/verbena-rdma/verbena/rsocket"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "rproxy", Short: "carry any TCP service over RDMA between two hosts", Run: run}
}

// usage names the address to listen on, then the address of the service or of the other rproxy.
const usage = "[options] tcp:HOST:PORT rdma:HOST:PORT    (beside the clients)\n" +
	"[options] rdma:HOST:PORT tcp:HOST:PORT    (beside the service)"

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, usage)
	verbose := f.BoolP("verbose", "v", false, "print each connection")
	timeout := f.Duration("timeout", 10*time.Second, "time-out for connecting to the target")
	buffer := f.Int("buffer", 1<<20, "bytes of each rsocket's send and receive buffers")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case f.NArg() != 2:
		return f.Misused("must be given the address to listen on and the target")
	case *timeout <= 0:
		return f.Misused(fmt.Sprintf("timeout %v: must be more than 0, such as 10s", *timeout))
	case *buffer <= 0:
		return f.Misused(fmt.Sprintf("buffer %d: must be at least 1 byte", *buffer))
	}
	o := rsocket.Options{SendBuf: *buffer, RecvBuf: *buffer}
	dial, err := dialer(f.Arg(1), *timeout, o)
	if err != nil {
		return f.Misused(err.Error())
	}
	l, err := listen(f.Arg(0), o)
	if winsock.Is(err, syscall.EADDRINUSE) && strings.HasPrefix(f.Arg(0), "tcp:") {
		err = fmt.Errorf("%w; choose another port, or end the program that has it: ss -ltnp", err)
	}
	if err != nil {
		return env.Failf("rproxy: %v", err)
	}
	defer l.Close()
	p := &Proxy{
		Dial: dial, Log: func(string, ...any) {},
		Failed: func(format string, args ...any) { fmt.Fprintf(env.Stderr, "rproxy: "+format+"\n", args...) },
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	defer context.AfterFunc(stop, func() { _ = l.Close() })()
	fmt.Fprintf(env.Stdout, "rproxy: %s to %s\n", l.Addr(), f.Arg(1))
	if *verbose {
		p.Log = func(format string, args ...any) { fmt.Fprintf(env.Stdout, format+"\n", args...) }
	}
	if err := p.Serve(l); stop.Err() == nil {
		return env.Failf("rproxy: %v", err)
	}
	return 0
}

// address splits tcp:HOST:PORT and rdma:HOST:PORT. An error begins with what; least is the smallest port.
func address(what, s string, least int) (rdma bool, addr string, err error) {
	kind, addr, _ := strings.Cut(s, ":")
	_, name, err := net.SplitHostPort(addr)
	if err != nil || kind != "rdma" && kind != "tcp" {
		return false, "", fmt.Errorf("%s %q: must be tcp:HOST:PORT or rdma:HOST:PORT, an IPv6 address in brackets", what, s)
	}
	if port, err := net.LookupPort("tcp", name); err != nil || port < least {
		return false, "", fmt.Errorf("%s %q: port %q: must be %d to 65535, or the name of a service", what, s, name, least)
	}
	return kind == "rdma", addr, nil
}

func listen(s string, o rsocket.Options) (net.Listener, error) {
	rdma, addr, err := address("address", s, 0)
	switch {
	case err != nil:
		return nil, err
	case rdma:
		return (&rsocket.ListenConfig{Options: o}).Listen(context.Background(), "tcp", addr)
	}
	return net.Listen("tcp", addr)
}

// dialer returns the function that connects to a target. The host's name is resolved for each connection.
func dialer(s string, timeout time.Duration, o rsocket.Options) (func() (net.Conn, error), error) {
	rdma, addr, err := address("target", s, 1)
	if err != nil {
		return nil, err
	}
	if rdma {
		d := &rsocket.Dialer{Options: o, Timeout: timeout}
		return func() (net.Conn, error) { return d.Dial("tcp", addr) }, nil
	}
	return func() (net.Conn, error) { return net.DialTimeout("tcp", addr, timeout) }, nil
}

// Proxy joins each accepted connection with one from Dial.
type Proxy struct {
	Dial   func() (net.Conn, error)
	Log    func(format string, args ...any)
	Failed func(format string, args ...any) // reports connections that Dial could not make
}

// Serve accepts connections until Accept fails permanently. Without descriptors it waits until there are some.
func (p *Proxy) Serve(l net.Listener) error {
	for {
		c, err := tool.Accept(l, func(err error) { p.Failed("%v; trying again until it works", err) })
		if err != nil {
			return err
		}
		go p.join(c)
	}
}

// halfCloser is implemented by both kinds of connections.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func (p *Proxy) join(c net.Conn) {
	defer c.Close()
	to, err := p.Dial()
	if err != nil {
		reset(c)
		p.Failed("%v: connection closed: %v", c.RemoteAddr(), err)
		return
	}
	defer to.Close()
	p.Log("%v: connected to %v", c.RemoteAddr(), to.RemoteAddr())
	j := joint{there: way{from: c.(halfCloser), to: to.(halfCloser)}, back: way{from: to.(halfCloser), to: c.(halfCloser)}}
	var both sync.WaitGroup
	both.Go(func() { j.carry(&j.there) })
	j.carry(&j.back)
	both.Wait()
	reason := ""
	if j.err != nil {
		reason = fmt.Sprintf("; failed: %v", j.err)
	}
	p.Log("%v: %d bytes there, %d back%s", c.RemoteAddr(), j.there.bytes, j.back.bytes, reason)
}

// joint is an accepted connection with that to the target.
type joint struct {
	there, back way
	fails       sync.Once
	err         error // the first failure; later ones are its consequences
}

// way is one direction.
type way struct {
	from, to halfCloser
	bytes    int64
	ended    atomic.Bool // the receiver has been told the end of the stream
}

// carry copies in one direction and passes on the end of the stream. An error ends both connections.
func (j *joint) carry(w *way) {
	var err error
	if w.bytes, err = io.Copy(w.to, w.from); err == nil {
		err = w.to.CloseWrite()
	}
	w.ended.Store(err == nil)
	if err != nil {
		j.fails.Do(func() {
			j.err = err
			go j.there.end() // Close of an rsocket may wait
			j.back.end()
		})
	}
}

// end closes the receiver's connection. If its stream has not ended, and it is of TCP, it is reset: the receiver must
// not take what it has for all. rsocket's protocol has no reset.
func (w *way) end() {
	if !w.ended.Load() {
		reset(w.to)
	}
	_ = w.to.Close()
}

// reset makes Close send a reset, if c is of TCP.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}

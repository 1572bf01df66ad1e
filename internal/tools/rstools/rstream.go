package rstools

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// stream is the common part of rstream and riostream: the options, connecting, and the series of tests.
type stream struct {
	env *tool.Env

	server, bind string
	port         string
	format       string
	buffer       int
	inline       int
	iterations   int
	count        int // transfers of an iteration
	size         int // bytes of a transfer
	keepalive    int
	all, custom  bool
	iomap        bool // riostream

	tcp, async, blocking, fork, verify bool

	flags    socket.Flags
	name     string // name of the test
	latency  bool   // in a series: the connection is for latency tests
	listener *socket.Socket
	tcpL     net.Listener
	e        end
	rs       *socket.Socket
	buf      []byte
	pattern  pattern
}

// maxSize is the largest transfer: both ends have a buffer of that size.
const maxSize = 1 << 30

const streamUsage = "[-s server_address] [-b bind_address] [options]"

// parse parses the options.
func (s *stream) parse(env *tool.Env, args []string) (status int, ok bool) {
	s.env = env
	f := tool.NewFlags(env, streamUsage)
	f.StringVarP(&s.server, "server", "s", "", "server_address; without it this is the server")
	f.StringVarP(&s.bind, "bind", "b", "", "bind_address")
	f.StringVarP(&s.format, "format", "f", "", "address_format: name, ip, ipv6, or gid")
	f.IntVarP(&s.buffer, "buffer", "B", 0, "buffer_size")
	f.IntVarP(&s.inline, "inline", "i", 64, "inline_size")
	f.IntVarP(&s.iterations, "iterations", "I", 1, "iterations")
	f.IntVarP(&s.count, "count", "C", 1000, "transfer_count")
	size := f.StringP("size", "S", "1000", "transfer_size or all")
	f.StringVarP(&s.port, "port", "p", "7471", "port_number")
	if !s.iomap {
		f.IntVarP(&s.keepalive, "keepalive", "k", 0, "keepalive_time")
	}
	tests := f.StringSliceP("test", "T", nil, s.testHelp())
	if status, ok := f.Parse(args); !ok {
		return status, false
	}
	if strings.HasPrefix(strings.ToLower(*size), "all") {
		s.all = true
		s.size = 1000
	} else if n, err := strconv.Atoi(*size); err == nil {
		s.size = n
	} else {
		return f.Misused(fmt.Sprintf("size %q: must be a number or all", *size)), false
	}
	s.custom = f.Changed("iterations") || f.Changed("count") || f.Changed("size") && !s.all
	for _, t := range *tests {
		if !s.testOption(strings.ToLower(t)) {
			return f.Misused(fmt.Sprintf("unknown test option %q", t)), false
		}
	}
	s.flags = socket.MsgDontWait
	if s.blocking {
		s.flags = socket.MsgWaitAll
	}
	switch {
	case f.NArg() > 0:
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	case s.size < 1 || s.size > maxSize:
		return f.Misused(fmt.Sprintf("size %d: must be 1 to %d bytes", s.size, maxSize)), false
	case s.count < 1 || s.iterations < 1:
		return f.Misused("count and iterations must be at least 1"), false
	case strings.HasPrefix(strings.ToLower(s.format), "gid"):
		return f.Misused("address format gid is not supported: must be name, ip or ipv6"), false
	}
	return 0, true
}

func (s *stream) testHelp() string {
	if s.iomap {
		return "test_option: async (use poll), blocking, nonblocking, verify, or their first letter"
	}
	return "test_option: sockets (TCP), async (use poll), blocking, fork (TCP, one server process each), " +
		"nonblocking, resolve, verify, or their first letter"
}

// testOption applies an option of -T: its first letter, or a word that begins with its name.
func (s *stream) testOption(t string) bool {
	is := func(word string) bool { return t == word[:1] || len(t) > 1 && strings.HasPrefix(t, word) }
	switch {
	case is("async"):
		s.async = true
	case is("block"):
		s.blocking = true
	case is("nonblock"):
		s.blocking = false
	case is("verify"):
		s.verify = true
	case s.iomap:
		return false
	case is("socket"):
		s.tcp = true
	case is("fork"):
		s.tcp, s.fork = true, true
	case is("resolve"): // addresses are always resolved the same way
	default:
		return false
	}
	return true
}

func (s *stream) pollTimeout() time.Duration {
	if s.blocking {
		return -1
	}
	return 0
}

// series returns the sizes to test.
func (s *stream) series() (list []int) {
	for _, t := range series(1<<6, 1<<22, 1<<6, 1<<12, 1<<16, 1<<20) {
		if s.all || !t.all {
			list = append(list, t.n)
		}
	}
	return list
}

// run connects and runs the tests: the latency series, then on another connection the throughput series; or
// the single custom test.
func (s *stream) run(test func() error) error {
	largest := s.size
	if !s.custom {
		sizes := s.series()
		largest = sizes[len(sizes)-1]
		if s.all {
			largest = 1<<22 + 1<<21
		}
	}
	s.buf = make([]byte, max(largest, syncBytes))
	if s.server == "" {
		if err := s.listen(); err != nil {
			return err
		}
		defer s.unlisten()
	}
	head(s.env.Stdout, true)
	if s.custom {
		s.name = "custom"
		return s.session(test)
	}
	for _, latency := range []bool{true, false} {
		s.latency = latency
		err := s.session(func() error {
			for _, n := range s.series() {
				s.size = n
				if latency {
					s.name, s.count, s.iterations = sizeText(int64(n))+"_lat", 1, countFor(n)
				} else {
					s.name, s.count, s.iterations = sizeText(int64(n))+"_bw", countFor(n), 1
				}
				if err := test(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// session runs tests on a connection.
func (s *stream) session(test func() error) error {
	if err := s.connect(); err != nil {
		return err
	}
	err := test()
	if err == nil && s.server == "" {
		s.parting()
	}
	if e := s.e.end(); err == nil {
		err = e
	}
	return err
}

// partingTimeout bounds the server's wait for the client to close the connection.
const partingTimeout = time.Second

// parting lets the client, which receives last, close the connection: the C client treats a close as a
// failure while it polls.
func (s *stream) parting() {
	if s.rs != nil {
		_, _ = socket.Poll([]socket.PollFD{{Socket: s.rs, Events: socket.PollIn}}, partingTimeout)
	}
}

func (s *stream) listen() (err error) {
	at, err := addresses(s.bind, s.port, s.format != "" && s.format != "name")
	if err != nil {
		return err
	}
	if s.tcp {
		s.tcpL, err = net.Listen("tcp", at.String())
		return err
	}
	if s.listener, err = socket.New(domainOf(at), socket.SockStream, 0); err != nil {
		return err
	}
	if err = s.listener.SetOptionInt(socket.SolSocket, socket.SoReuseAddr, 1); err == nil {
		err = s.listener.Bind(at)
	}
	if err == nil {
		// connections inherit the listener's options at the time they are made, which may be before Accept
		err = s.sizes(s.listener)
	}
	if err == nil {
		err = s.listener.Listen(1)
	}
	return err
}

func (s *stream) unlisten() {
	if s.tcpL != nil {
		_ = s.tcpL.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

func (s *stream) connect() error {
	switch {
	case s.tcp && s.server == "":
		c, err := s.tcpL.Accept()
		s.e = tcpEnd{c}
		return err
	case s.tcp:
		c, err := net.Dial("tcp", net.JoinHostPort(s.server, s.port))
		s.e = tcpEnd{c}
		return err
	case s.server == "":
		return s.accept()
	}
	return s.dial()
}

// options sets the socket's options.
func (s *stream) options(r *socket.Socket) error {
	errs := []error{s.sizes(r)}
	if s.keepalive > 0 {
		errs = append(errs, r.SetOptionInt(socket.SolSocket, socket.SoKeepAlive, 1),
			r.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepIdle, s.keepalive))
		fmt.Fprintf(s.env.Stdout, "Keepalive: ON\n  time: %d\n", s.keepalive)
	}
	return errors.Join(errs...)
}

// sizes sets the options that take effect when a connection is made.
func (s *stream) sizes(r *socket.Socket) error {
	n := s.buffer
	if n == 0 {
		n = 1 << 19
	}
	var errs []error
	set := func(level, name, value int) { errs = append(errs, r.SetOptionInt(level, name, value)) }
	set(socket.SolSocket, socket.SoSndBuf, n)
	set(socket.SolSocket, socket.SoRcvBuf, n)
	set(socket.IPProtoTCP, socket.TCPNoDelay, 1)
	r.SetNonblock(!s.blocking)
	// An accepted socket inherits the listener's.
	if r != s.rs || s.server != "" {
		if s.iomap {
			set(socket.SolRDMA, socket.RDMAIOMapSize, 1)
		}
		if !s.custom {
			inline := 0
			if s.latency {
				inline = s.inline
			}
			set(socket.SolRDMA, socket.RDMAInline, inline)
		}
	}
	return errors.Join(errs...)
}

func (s *stream) accept() error {
	if err := s.options(s.listener); err != nil {
		return err
	}
	for {
		if s.async {
			if err := waitFor(s.listener, socket.PollIn, s.pollTimeout()); err != nil {
				return err
			}
		}
		r, _, err := s.listener.Accept()
		if again(err) {
			runtime.Gosched()
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		s.rs = r
		s.e = &rsEnd{r, s.async, s.pollTimeout()}
		return s.options(r)
	}
}

func (s *stream) dial() error {
	numeric := s.format != "" && s.format != "name"
	to, err := addresses(s.server, s.port, numeric)
	if err != nil {
		return err
	}
	if s.rs, err = socket.New(domainOf(to), socket.SockStream, 0); err != nil {
		return err
	}
	s.e = &rsEnd{s.rs, s.async, s.pollTimeout()}
	if err := s.options(s.rs); err != nil {
		return err
	}
	if s.bind != "" {
		from, err := addresses(s.bind, "0", numeric)
		if err == nil {
			err = s.rs.Bind(from)
		}
		if err != nil {
			return err
		}
	}
	err = s.rs.Connect(to)
	if errors.Is(err, syscall.EINPROGRESS) {
		err = s.connected()
	}
	return err
}

// connected waits until the connection of a nonblocking socket is made or has failed.
func (s *stream) connected() error {
	if err := waitFor(s.rs, socket.PollOut, s.pollTimeout()); err != nil {
		return err
	}
	errno, err := s.rs.OptionInt(socket.SolSocket, socket.SoError)
	if err != nil || errno == 0 {
		return err
	}
	// SoError is an errno only. A receive returns the whole error: the addresses, and what to check.
	if _, err = s.rs.Recv(s.buf[:1], socket.MsgDontWait); err == nil {
		err = syscall.Errno(errno)
	}
	return err
}

// send sends n bytes of the buffer.
func (s *stream) send(n int) error {
	for off := 0; off < n; {
		if err := s.e.wait(socket.PollOut); err != nil {
			return err
		}
		k, err := s.e.Send(s.buf[off:n], s.flags)
		if err != nil && !again(err) {
			return fmt.Errorf("rsend: %w", err)
		}
		off += k
	}
	return nil
}

// recv receives n bytes into the buffer.
func (s *stream) recv(n int) error {
	for off := 0; off < n; {
		if err := s.e.wait(socket.PollIn); err != nil {
			return err
		}
		k, err := s.e.Recv(s.buf[off:n], s.flags)
		switch {
		case again(err):
			continue
		case err == nil && k == 0:
			err = fmt.Errorf("%w: the peer has ended, %d of %d bytes are missing; both ends need the same -S, -C and -T",
				io.EOF, n-off, n)
		}
		if err != nil {
			return fmt.Errorf("rrecv: %w", err)
		}
		off += k
	}
	return nil
}

// syncBytes is the length of the messages exchanged before each test.
const syncBytes = 16

func (s *stream) sync() error {
	give, take := s.give, s.take
	if s.iomap { // which does not verify these messages
		give, take = s.send, s.recv
	}
	first, second := take, give
	if s.server != "" {
		first, second = give, take
	}
	if err := first(syncBytes); err != nil {
		return err
	}
	return second(syncBytes)
}

func (s *stream) show(took time.Duration) {
	r := result{
		name: s.name, size: s.size, transfers: s.count, iters: s.iterations,
		total: int64(s.iterations) * int64(s.count) * int64(s.size) * 2,
		took:  took, perTransfer: float64(took) / 1e3 / float64(s.iterations) / float64(2*s.count),
	}
	r.print(s.env.Stdout)
}

// runStream is rstream.
func runStream(env *tool.Env, args []string) int {
	s := &stream{}
	if status, ok := s.parse(env, args); !ok {
		return status
	}
	if err := s.run(s.exchange); err != nil {
		return env.Failf("rstream: %v", err)
	}
	return 0
}

// exchange is a test of rstream: the client sends its transfers, then the server.
func (s *stream) exchange() error {
	if err := s.sync(); err != nil {
		return err
	}
	first, second := s.take, s.give
	if s.server != "" {
		first, second = s.give, s.take
	}
	start := time.Now()
	for range s.iterations {
		for range s.count {
			if err := first(s.size); err != nil {
				return err
			}
		}
		for range s.count {
			if err := second(s.size); err != nil {
				return err
			}
		}
	}
	s.show(time.Since(start))
	return nil
}

// give sends n bytes, with the pattern if the test verifies.
func (s *stream) give(n int) error {
	if s.verify {
		s.pattern.fill(s.buf[:n])
	}
	return s.send(n)
}

func (s *stream) take(n int) error {
	err := s.recv(n)
	if err == nil && s.verify {
		err = s.pattern.check(s.buf[:n])
	}
	return err
}

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

const (
	// mostAskers limits the concurrent answers; further connections are closed.
	mostAskers = 64
	// pause is the pause after an error of Accept, as without descriptors.
	pause = 100 * time.Millisecond
)

// testTimeout is the timeout of a test in ns, 0 for the usual one. It is atomic since goroutines of the tests before
// may read it.
var testTimeout atomic.Int64

// timeout limits a question and its answer.
func timeout() time.Duration {
	if t := testTimeout.Load(); t != 0 {
		return time.Duration(t)
	}
	return 2 * time.Second
}

// A Program answers questions. Its methods are called by several goroutines.
type Program interface {
	// Report describes the process, with each object if objects is set.
	Report(objects bool) Report
	// Counters returns the counters of a device under the names of their files, nil if the process does not have it
	// open.
	Counters(device string) []Counter
	// Capture writes blocks of the packets of a device to c until reads of c end. Then it writes the remaining
	// blocks, within the time that Part leaves. announced is the name of the announcement of the tool, or empty.
	// The tool may limit the length of each packet (SnapOf), in lines that r reads from c.
	Capture(c net.Conn, r *bufio.Reader, device, announced string)
}

// A Server answers the questions of tools to a process.
type Server struct {
	// Name is the address of its socket.
	Name    string
	program Program
	serving sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	listener net.Listener // nil once it is closed
	// +checklocks:mu
	conns map[net.Conn]bool
}

// Serve starts to answer on the socket of the process. It fails on systems without abstract unix sockets.
func Serve(p Program) (*Server, error) {
	name := Name(os.Geteuid(), os.Getpid())
	var l net.Listener
	var err error
	for n := range slots {
		if l, err = net.Listen("unix", nth(name, n)); !errors.Is(err, syscall.EADDRINUSE) {
			name = nth(name, n)
			break
		}
	}
	if err != nil {
		return nil, err
	}
	fdset.AddConn(l.(*net.UnixListener))
	u := untrusted.Over(l.(*net.UnixListener))
	u.Admit = mayAsk // others take none of the places
	s := &Server{Name: name, program: p, listener: u, conns: make(map[net.Conn]bool)}
	s.serving.Add(1)
	go s.accept(u)
	return s, nil
}

// Close ends all answers and waits for them. Captures get the remaining packets within a short time.
func (s *Server) Close() {
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	for c := range s.conns {
		Part(c)
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Part makes reads of a connection fail at once, and writes after a short time.
func Part(c net.Conn) {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	_ = c.SetWriteDeadline(time.Now().Add(parting))
}

func (s *Server) accept(l net.Listener) {
	defer s.serving.Done()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		fdset.AddConn(c.(*net.UnixConn))
		s.Go(c, func() { s.answer(c.(*net.UnixConn)) })
	}
}

// Go runs f for a connection, which is closed when f returns, or at once if there are too many or the server is
// closed.
func (s *Server) Go(c net.Conn, f func()) {
	if !s.admit(c) {
		_ = untrusted.Close(c)
		return
	}
	go func() {
		defer s.serving.Done()
		defer func() {
			_ = untrusted.Close(c)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		}()
		f()
	}()
}

// admit reports whether a connection is served.
func (s *Server) admit(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil || len(s.conns) >= mostAskers {
		return false
	}
	s.conns[c] = true
	s.serving.Add(1)
	return true
}

// answer answers one question.
func (s *Server) answer(c *net.UnixConn) {
	if s.allow(c, timeout()) != nil {
		return
	}
	r := bufio.NewReaderSize(untrusted.Reader(c), 256)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return
	}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return
	}
	switch words = append(words, "", ""); words[0] {
	case AskReport, AskObjects:
		_ = json.NewEncoder(fdset.Writer(c)).Encode(s.program.Report(words[0] == AskObjects))
	case AskCounters:
		var text []byte
		for _, n := range s.program.Counters(words[1]) {
			text = fmt.Appendf(text, "%s %d\n", n.Name, n.Value)
		}
		_ = fdset.Send(c, text, nil)
	case AskCapture:
		if s.allow(c, 0) == nil {
			s.program.Capture(c, r, words[1], words[2])
		}
	}
}

// allow sets the deadline of a connection to d from now, or to none if d is 0. It fails if the server is closed.
func (s *Server) allow(c net.Conn, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.listener == nil:
		return net.ErrClosed
	case d == 0:
		return c.SetDeadline(time.Time{})
	}
	return c.SetDeadline(time.Now().Add(d))
}

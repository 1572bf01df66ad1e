package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// mostAskers is how many are answered at the same time; more are turned away.
	mostAskers = 64
	// pause follows an Accept that failed, as it does without descriptors.
	pause = 100 * time.Millisecond
)

// patience is how long a question and its answer may take.
var patience = 2 * time.Second

// A Program answers questions. Its methods are called by several goroutines.
type Program interface {
	// Report describes the process, with each object if objects is set.
	Report(objects bool) Report
	// Capture writes blocks of a device's packets to c until reads of c end. Then it parts: it writes what is left, as long
	// as Part lets it. announced is where the asker takes calls, empty if nowhere.
	// The asker may say how much of each packet it wants (SnapOf), in lines that r reads from c.
	Capture(c net.Conn, r *bufio.Reader, device, announced string)
}

// A Server answers the tools' questions to a process.
type Server struct {
	// Name is the address of its socket.
	Name    string
	program Program
	serving sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil once it is closed
	conns    map[net.Conn]bool
}

// Serve begins to answer on the process's socket. It fails where there are no abstract unix sockets.
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
	s := &Server{Name: name, program: p, listener: l, conns: make(map[net.Conn]bool)}
	s.serving.Add(1)
	go s.accept(l)
	return s, nil
}

// Close ends all answers and returns when that is done. Captures get what is left, for a moment.
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

// Part has reads of a connection fail at once, and writes soon.
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
		s.Go(c, func() { s.answer(c.(*net.UnixConn)) })
	}
}

// Go runs f for a connection, which is closed when f returns, or at once if there are too many, or the server is closed.
func (s *Server) Go(c net.Conn, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil || len(s.conns) >= mostAskers {
		_ = c.Close()
		return
	}
	s.conns[c] = true
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		defer func() {
			_ = c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		}()
		f()
	}()
}

// answer answers one question.
func (s *Server) answer(c *net.UnixConn) {
	if !mayAsk(c) || s.allow(c, patience) != nil {
		return
	}
	r := bufio.NewReaderSize(c, 256)
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
		_ = json.NewEncoder(c).Encode(s.program.Report(words[0] == AskObjects))
	case AskCapture:
		if s.allow(c, 0) == nil {
			s.program.Capture(c, r, words[1], words[2])
		}
	}
}

// allow gives a connection time, or any time it wants, unless the server is being closed.
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

package rstools

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/printable"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rsocket"
)

// Messages of rcopy: version, command, message length, a number and an id, in native byte order, followed
// by a path or the file's size.
const (
	copyOpen  = 1
	copyClose = 2
	copyWrite = 3
	copyResp  = 0x80

	copyHeader = 16
)

type copyMsg struct {
	command uint8
	data    uint32
	id      uint64
	body    []byte
}

func (m *copyMsg) send(w io.Writer) error {
	b := []byte{0, m.command, 0, 0}
	binary.NativeEndian.PutUint16(b[2:], uint16(copyHeader+len(m.body)))
	b = binary.NativeEndian.AppendUint32(b, m.data)
	b = binary.NativeEndian.AppendUint64(b, m.id)
	_, err := w.Write(append(b, m.body...))
	return err
}

func receiveCopy(r io.Reader) (m copyMsg, err error) {
	var h [copyHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return m, err
	}
	n := int(binary.NativeEndian.Uint16(h[2:]))
	if h[0] != 0 || n < copyHeader {
		return m, fmt.Errorf("invalid version %d or length %d", h[0], n)
	}
	m = copyMsg{h[1], binary.NativeEndian.Uint32(h[4:]), binary.NativeEndian.Uint64(h[8:]), make([]byte, n-copyHeader)}
	_, err = io.ReadFull(r, m.body)
	return m, err
}

func runCopy(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options]\nsource server[:destination] [options]")
	port := f.StringP("port", "p", "7427", "port_number")
	folder := f.String("folder", ".", "server: clients write files below this folder only")
	anywhere := f.Bool("anywhere", false, "server: clients write any file that this user can, as with the C program")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	var err error
	switch f.NArg() {
	case 0:
		files := &copyFolder{anywhere: *anywhere}
		if err = files.open(*folder); err == nil {
			err = serveCopies(env, *port, files)
		}
	case 2:
		err = copyFile(env, f.Arg(0), f.Arg(1), *port)
	default:
		return f.Misused("must be given a source and a server, or neither")
	}
	if err != nil {
		return env.Failf("rcopy: %v", err)
	}
	return 0
}

// splitServer splits server and destination. The destination may have colons. An IPv6 address before it is in brackets.
func splitServer(arg, source string) (server, destination string) {
	if rest, ok := strings.CutPrefix(arg, "["); ok {
		server, destination, _ = strings.Cut(rest, "]")
		destination = strings.TrimPrefix(destination, ":")
	} else if _, err := netip.ParseAddr(arg); err == nil {
		server = arg
	} else {
		server, destination, _ = strings.Cut(arg, ":")
	}
	if destination == "" {
		destination = source
	}
	return server, destination
}

// copyFile is the client.
func copyFile(env *tool.Env, source, to, port string) error {
	server, destination := splitServer(to, source)
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", source)
	}
	c, err := rsocket.Dial("tcp", net.JoinHostPort(server, port))
	if err != nil {
		return err
	}
	defer c.Close()
	say := func(text string) { fmt.Fprint(env.Stdout, text) }
	ask := func(m copyMsg) error {
		if err := m.send(c); err != nil {
			return err
		}
		return copyAnswer(c, m.command)
	}
	say("opening...")
	// The path ends with at least one zero, and the message at a multiple of 8.
	path := make([]byte, (len(destination)+8)&^7)
	copy(path, destination)
	if err := ask(copyMsg{command: copyOpen, data: unixMode(info), body: path}); err != nil {
		return err
	}
	say("transferring...")
	size := info.Size()
	start := time.Now()
	if err := sendFile(c, file, size); err != nil {
		return err
	}
	took := time.Since(start)
	say("closing...")
	if err := ask(copyMsg{command: copyClose}); err != nil {
		return err
	}
	say("done\n")
	us := float64(took) / 1e3
	fmt.Fprintf(env.Stdout, "%d bytes in %.2f seconds = %.2f Gb/sec\n", size, us/1e6, float64(size)*8/(1000*us))
	return nil
}

// sendFile sends size bytes of a file. It reads the answer meanwhile: a server whose disk is full answers before it has
// read everything, and that answer is a better reason than the connection's end.
func sendFile(c net.Conn, file io.Reader, size int64) error {
	m := copyMsg{command: copyWrite, body: binary.NativeEndian.AppendUint64(nil, uint64(size))}
	if err := m.send(c); err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		err := copyAnswer(c, copyWrite)
		answer <- err
		if err != nil {
			_ = c.SetWriteDeadline(time.Now()) // the rest of the file is in vain
		}
	}()
	n, err := io.Copy(c, io.LimitReader(file, size))
	if err == nil && n == size {
		return <-answer
	}
	err = errors.Join(fmt.Errorf("%d of %d bytes were sent", n, size), err)
	var ofConn *net.OpError
	if !errors.As(err, &ofConn) { // the file's fault: there will be no answer
		return err
	}
	said := <-answer
	if errors.As(said, new(refusal)) {
		return said
	}
	return err
}

// A refusal is an answer of the server with an error.
type refusal struct{ syscall.Errno }

func (r refusal) Error() string { return "the server reports: " + r.Errno.Error() }
func (r refusal) Unwrap() error { return r.Errno }

// unixMode returns a file's mode as stat does.
func unixMode(info os.FileInfo) uint32 { return syscall.S_IFREG | uint32(info.Mode().Perm()) }

// copyAnswer waits for the answer to a command.
func copyAnswer(c net.Conn, command uint8) error {
	m, err := receiveCopy(c)
	switch {
	case err != nil:
		return err
	case m.command != command|copyResp || len(m.body) > 0:
		return fmt.Errorf("invalid length %d or bad command response %x:%x", copyHeader+len(m.body), m.command,
			command|copyResp)
	case m.data != 0:
		return refusal{syscall.Errno(m.data)}
	}
	return nil
}

// serveCopies is the server. It serves one client after the other.
func serveCopies(env *tool.Env, port string, files *copyFolder) error {
	l, err := rsocket.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Fprintf(env.Stderr, "rcopy: %s\n", files)
	for {
		fmt.Fprint(env.Stdout, "waiting for connection...")
		c, err := tool.Accept(l, func(err error) { env.Failf("rcopy: %v; trying again until it works", err) })
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Stdout, "client: %s\n", c.RemoteAddr().(*net.TCPAddr).IP)
		s := copyServer{env: env, c: bounded{c}, files: files}
		if err := s.serve(); err != nil && err != io.EOF {
			s.say("%v\n", err)
		}
		_ = c.Close()
	}
}

// silence is how long a client may be silent. There is one at a time, and others wait for it.
const silence = time.Minute

// bounded is a connection whose reads and writes take no longer than silence.
type bounded struct{ net.Conn }

func (b bounded) Read(p []byte) (int, error) {
	_ = b.SetReadDeadline(time.Now().Add(silence))
	return b.Conn.Read(p)
}

func (b bounded) Write(p []byte) (int, error) {
	_ = b.SetWriteDeadline(time.Now().Add(silence))
	return b.Conn.Write(p)
}

// copyServer is the server's side of a connection.
type copyServer struct {
	env   *tool.Env
	c     net.Conn
	files *copyFolder
	file  *os.File
	rest  int64 // bytes of the file that the client still sends after an error
}

func (s *copyServer) serve() error {
	defer func() {
		if s.file != nil {
			_ = s.file.Close()
		}
	}()
	for {
		m, err := receiveCopy(s.c)
		if err != nil {
			return err
		}
		switch m.command {
		case copyOpen:
			err = s.open(&m)
		case copyWrite:
			err = s.write(&m)
		case copyClose:
			err = s.close()
		default:
			err = fmt.Errorf("command %d: %w", m.command, syscall.EINVAL)
		}
		status := uint32(0)
		if err != nil {
			errno := syscall.EIO
			errors.As(err, &errno)
			status = uint32(errno)
		}
		e := (&copyMsg{command: m.command | copyResp, data: status, id: m.id}).send(s.c)
		if e == nil && err != nil {
			// A client that reads the answer after it has sent everything would get ECONNRESET instead.
			_, _ = io.CopyN(io.Discard, s.c, s.rest)
		}
		if e != nil || err != nil {
			return errors.Join(err, e)
		}
	}
}

func (s *copyServer) say(format string, args ...any) {
	fmt.Fprint(s.env.Stdout, printable.Lines(fmt.Sprintf(format, args...)))
}

func (s *copyServer) open(m *copyMsg) (err error) {
	path, _, _ := strings.Cut(string(m.body), "\x00")
	s.say("opening: %s, ", printable.Text(path))
	if s.file != nil {
		return fmt.Errorf("cannot open another file: %w", syscall.EBUSY)
	}
	s.file, err = s.files.create(path, os.FileMode(m.data&0o777))
	return err
}

func (s *copyServer) write(m *copyMsg) error {
	s.say("transferring")
	if s.file == nil || len(m.body) != 8 {
		return fmt.Errorf("file not opened or invalid message length %d: %w", copyHeader+len(m.body), syscall.EINVAL)
	}
	size := binary.NativeEndian.Uint64(m.body)
	if size > 1<<62 {
		return fmt.Errorf("file of %d bytes: %w", size, syscall.EFBIG)
	}
	s.say("...%d bytes...", size)
	data := &io.LimitedReader{R: s.c, N: int64(size)}
	_, err := io.Copy(s.file, data)
	if s.rest = data.N; err == nil && s.rest > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (s *copyServer) close() (err error) {
	s.say("closing...")
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	s.say("done\n")
	return err
}

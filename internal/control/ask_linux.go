package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

const (
	// mostAnswer limits the answer of a process, in bytes.
	mostAnswer = 256 << 20
	// mostOfOthers limits all answers of the processes of another user, in bytes. Only root asks these, and they
	// must not exhaust the memory of its tools. Each value in a list counts valueCost in addition: even the text of an
	// empty one, as in [0,0], may become a QP or a device in memory, of 200 bytes.
	mostOfOthers = 64 << 20
	valueCost    = 64
	// mostAsked limits the number of processes of one user that are asked at the same time: of this user, and of another
	// one. mostUsers limits the number of users whose processes are.
	mostAsked, mostOfOther = 256, 64
	mostUsers              = 64
)

// budgets limit the answers of the processes of each user.
type budgets struct {
	mu sync.Mutex
	// +checklocks:mu
	left map[int]int64 // bytes, by user
	// +checklocks:mu
	until map[int]time.Time // when the processes of a user are no longer asked
}

// errNotAsked is the error of a process of a user whose processes have taken too much time together. A user can make
// any number of sockets that do not answer, and processes of other users must be asked, too.
var errNotAsked = errors.New("not asked: other programs of this user did not answer in time")

// begin returns errNotAsked if the time for the processes of the user in a name is over. It starts with the first one.
func (b *budgets) begin(name string) error {
	of := Account(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	end, known := b.until[of]
	if !known {
		if b.until == nil {
			b.until = make(map[int]time.Time)
		}
		end = now.Add(2 * timeout())
		b.until[of] = end
	}
	if now.After(end) {
		return errNotAsked
	}
	return nil
}

// A share is an answer of a process of another user.
type share struct {
	io.Reader
	of      *budgets
	account int
}

// accountOf is peeruser.Account. A test replaces it.
var accountOf = peeruser.Account

// Account returns the user whose limits count for the process of a name.
func Account(name string) int {
	uid, _ := owner(name)
	return int(accountOf(uint32(uid)))
}

// of limits the answer of a process, whose user is in its name.
func (b *budgets) of(r io.Reader, name string) io.Reader {
	uid, _ := owner(name) // genuine has checked it
	if uid == os.Geteuid() {
		return &capped{r, mostAnswer}
	}
	return &share{r, b, Account(name)}
}

// capped is an answer of a process of this user. One that ends at the limit must not look like that of a process that
// has ended.
type capped struct {
	io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	n, err := c.Reader.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

var errTooLong = fmt.Errorf("it is longer than %d MiB", mostAnswer>>20)

// errTooMuch ends an answer that exceeds the budget of its user.
var errTooMuch = fmt.Errorf("the answers of this user's programs are longer than %d MiB", mostOfOthers>>20)

func (s *share) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	left, known := s.of.left[s.account]
	if !known {
		left = mostOfOthers
	}
	if left -= int64(n) + valueCost*int64(bytes.Count(p[:n], []byte{','})); left < 0 {
		return 0, errTooMuch
	}
	if s.of.left == nil {
		s.of.left = make(map[int]int64)
	}
	s.of.left[s.account] = left
	return n, err
}

// sockets is the list of unix sockets of Linux.
var sockets = "/proc/net/unix"

// Processes lists the names of the sockets of processes that answer.
func Processes() ([]string, error) {
	b, err := os.ReadFile(sockets)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[7], programs) || f[3] != "00010000" { // one that listens
			continue
		}
		names = append(names, f[7])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// ask sends a question to one process. pid is its process number, 0 if it is not visible in this PID namespace.
func ask(name, question string) (c net.Conn, pid int, err error) {
	d := net.Dialer{Timeout: timeout(), Control: untrusted.Control}
	c, err = d.Dial("unix", name)
	if err != nil {
		return nil, 0, err
	}
	cred, err := genuine(c.(*net.UnixConn), name)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(timeout()))
		_, err = io.WriteString(c, question+"\n")
	}
	if err != nil {
		_ = untrusted.Close(c)
		return nil, 0, err
	}
	return c, int(cred.Pid), nil
}

// Reports asks every process for its report, with each object if objects is set. It omits processes that end
// meanwhile; others that do not answer are in silent. It asks many at the same time, so stopped processes together
// take the time of one, and those of each user for themselves: a user can make any number of sockets that do not
// answer.
func Reports(objects bool) (list []Report, silent []Silent, err error) {
	question := AskReport
	if objects {
		question = AskObjects
	}
	names, err := Processes()
	if err != nil {
		return nil, nil, err
	}
	answers, errs := make([]Report, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	var allowed budgets
	users := make(chan struct{}, mostUsers)
	for of, list := range byAccount(names) {
		users <- struct{}{}
		asking.Go(func() {
			eachOf(list, of, func(i int) { answers[i], errs[i] = report(names[i], question, &allowed) })
			<-users
		})
	}
	asking.Wait()
	for i, n := range names {
		switch {
		case errs[i] == nil:
			list = append(list, answers[i])
		case !errors.Is(errs[i], errEnded):
			silent = append(silent, Silent{n, errs[i]})
		}
	}
	return list, silent, nil
}

// byAccount returns the indexes of the names of each user's processes.
func byAccount(names []string) map[int][]int {
	of := make(map[int][]int)
	for i, n := range names {
		of[Account(n)] = append(of[Account(n)], i)
	}
	return of
}

// eachOf calls f for the processes of a user, many at the same time.
func eachOf(list []int, account int, f func(i int)) {
	most := mostOfOther
	if account == int(accountOf(uint32(os.Geteuid()))) {
		most = mostAsked
	}
	var asking sync.WaitGroup
	turns := make(chan struct{}, most)
	for _, i := range list {
		turns <- struct{}{}
		asking.Go(func() {
			f(i)
			<-turns
		})
	}
	asking.Wait()
}

// errEnded is the error of a process that has ended.
var errEnded = errors.New("it has ended")

func report(name, question string, allowed *budgets) (r Report, err error) {
	if err := allowed.begin(name); err != nil {
		return r, err
	}
	c, pid, err := ask(name, question)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return r, errEnded
	case hungUp(err):
		return r, refused(name)
	case err != nil:
		return r, err
	}
	defer func() { _ = untrusted.Close(c) }()
	switch err = json.NewDecoder(bufio.NewReader(allowed.of(untrusted.Reader(c.(*net.UnixConn)), name))).Decode(&r); {
	case hungUp(err):
		return r, refused(name)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r, fmt.Errorf("no answer within %v: is it stopped?", timeout())
	case err != nil:
		return r, fmt.Errorf("invalid answer, possibly of another version: %w", err)
	}
	r.locate(name, pid)
	return r, nil
}

// locate enters the user of the process and its number in this PID namespace; 0 stands for none. The number that the
// process has reported is that of its own namespace.
func (r *Report) locate(name string, pid int) {
	r.UID, _ = owner(name) // genuine has checked it
	r.Account = Account(name)
	if r.PID = pid; pid > 0 {
		return
	}
	r.Elsewhere = strings.TrimPrefix(name, programs)
}

func hungUp(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refused returns the reason why a process closes the connection: it belongs to another user, or has ended.
func refused(name string) error {
	if uid, _ := owner(name); os.Geteuid() != 0 && os.Geteuid() != uid {
		return notOurs(uid)
	}
	return errEnded
}

// notOurs is the error of a program of another user, by its number. errors.Is finds fs.ErrPermission in it.
type notOurs int

func (uid notOurs) Error() string {
	return fmt.Sprintf("refused: a program answers its own user, here %d, and root", int(uid))
}

func (notOurs) Is(target error) bool { return target == fs.ErrPermission }

// Capture asks a process for the packets of a device from now on, unless the process has called the announcement.
func Capture(name, device, announced string) (*Stream, error) {
	c, _, err := ask(name, strings.TrimSpace(AskCapture+" "+device+" "+announced))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	_ = c.SetDeadline(time.Time{})
	return streamOf(c.(*net.UnixConn)), nil
}

// streamOf returns the stream of a program that may be another user's.
func streamOf(c *net.UnixConn) *Stream { return &Stream{untrusted.Reader(c), c} }

package control

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// A capture cannot find a program that ends before the capture lists the programs again. So the capture announces
// itself, and a program calls it when it opens a device, before the first packet of the device.

// An Announcement is the socket at which programs call a capture.
type Announcement struct {
	// Name is its address.
	Name string

	l       *untrusted.Listener
	calling sync.WaitGroup
}

// A Call is a stream that a program opens by itself.
type Call struct {
	Process string // the name of its socket
	Device  string
	*Stream
}

// Announce makes programs of this user, for root of all users, call take when they open a device, each call in its
// own goroutine. EADDRINUSE means that the maximum number of captures is announced already.
func Announce(take func(*Call)) (*Announcement, error) {
	var err error
	for n := range slots {
		name := announcement(os.Geteuid(), n)
		var l net.Listener
		if l, err = net.Listen("unix", name); err == nil {
			a := &Announcement{Name: name, l: untrusted.Over(l.(*net.UnixListener))}
			a.l.Admit = mayCall
			a.calling.Add(1)
			go a.accept(take)
			return a, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, err
}

// Close ends the announcement. Calls continue.
func (a *Announcement) Close() {
	_ = a.l.Close()
	a.calling.Wait()
}

// mayCall reports whether this user may receive the packets of a process.
func mayCall(cred *unix.Ucred) bool { return os.Geteuid() == 0 || peeruser.Own(cred) }

// Callers of one capture that have not introduced themselves: all, and those of one user. More are closed at once.
const (
	introductions       = 64
	introductionsOfUser = introductions / 2
)

// callers counts the callers that have not introduced themselves.
type callers struct {
	mu  sync.Mutex
	all int
	of  map[uint32]int // by user
}

// begin reports whether a user may have one more. end is called when the caller has introduced itself.
func (c *callers) begin(uid uint32) (end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == introductions || c.of[uid] == introductionsOfUser {
		return nil, false
	}
	c.all++
	c.of[uid]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.of[uid]--; c.of[uid] == 0 {
			delete(c.of, uid)
		}
	}, true
}

func (a *Announcement) accept(take func(*Call)) {
	defer a.calling.Done()
	places := callers{of: make(map[uint32]int)}
	for {
		c, err := a.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		var end func()
		cred, err := peeruser.Of(c)
		ok := err == nil
		if ok {
			end, ok = places.begin(accountOf(cred.Uid))
		}
		if !ok {
			_ = untrusted.Close(c)
			continue
		}
		go func() {
			call := introduced(c)
			end()
			if call != nil {
				take(call)
				return
			}
			_ = untrusted.Close(c)
		}()
	}
}

// introduced reads the introduction of a caller, nil if there is none.
func introduced(c *net.UnixConn) *Call {
	_ = c.SetDeadline(time.Now().Add(timeout()))
	r := bufio.NewReaderSize(untrusted.Reader(c), 1<<10)
	line, err := r.ReadSlice('\n') // a longer line than the buffer is an error
	words := strings.Fields(string(line))
	if err != nil || len(words) != 2 {
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	return &Call{words[0], words[1], &Stream{r, c}}
}

// CallCaptures connects to the announced captures of this user and of root, except those for which skip returns true,
// and introduces a device to each. It neither blocks nor fails: it omits a capture that does not accept at once.
func CallCaptures(process, device string, skip func(announced string) bool) map[string]net.Conn {
	var calls map[string]net.Conn
	uids := []int{os.Geteuid(), 0}
	if uids[0] == 0 {
		uids = uids[:1]
	}
	for _, uid := range uids {
		for n := range slots {
			name := announcement(uid, n)
			if skip(name) {
				continue
			}
			if c := call(name); c != nil {
				if fdset.Send(c, fmt.Appendf(nil, "%s %s\n", process, device), nil) != nil {
					_ = untrusted.Close(c)
					continue
				}
				if calls == nil {
					calls = make(map[string]net.Conn)
				}
				calls[name] = c
			}
		}
	}
	return calls
}

// call connects to an announced capture, nil if there is none.
func call(name string) *net.UnixConn {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	untrusted.Refuse(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	u := c.(*net.UnixConn)
	fdset.AddConn(u)
	if _, err := genuine(u, name); err != nil {
		_ = untrusted.Close(u)
		return nil
	}
	return u
}

package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is the receive sockets of one address, shared with the other processes that use it.
type Group struct {
	names  names
	fds    []int
	onLead func()
	estate *estate // nil if there is none

	// Send sends what processes that have died have left. It is set before Start, and called by any goroutine, until Stop has returned.
	Send func([]Bequest)

	mu        sync.Mutex
	leader    *listener     // if we are it
	watched   *net.UnixConn // to the leader, if we are not
	followers map[*net.UnixConn]struct{}
	closed    bool
	stopped   chan struct{}
	done      sync.WaitGroup
	settling  bool // a goroutine looks for what the dead have left
	again     bool // and shall begin anew
}

// What a process says to the leader, and the leader's answer.
const (
	askJoin   = 'J' // descriptors, please
	askFollow = 'F' // I have them, and want to know when you end
	answerYes = 'Y'
)

const (
	// A port that a newcomer cannot bind is a stranger's if it looks like one so many times in a row, that long apart: its processes may be
	// just choosing a leader.
	foreignLooks = 3
	foreignPause = 100 * time.Millisecond
	// patience is how long the leader may take to answer, and processes with lanes to choose one: the machine may be busy.
	patience = 5 * time.Second
	pause    = time.Millisecond
)

// Join makes the process part of the group of an address. If there is none, create opens its sockets: one for each lane and one
// for QP 1, in this order. Its error EADDRINUSE means that others than processes of this kind hold the port. EACCES
// if the group is another user's. The caller starts and closes the group.
//
// If there is a folder of the group, see Share, whoever may write there may join, otherwise processes of the same user.
func Join(key Key, create func() ([]int, error)) (*Group, error) {
	g := &Group{followers: map[*net.UnixConn]struct{}{}, stopped: make(chan struct{})}
	looked, foreign := time.Now(), 0
	for begin := looked; ; sleepAbout(pause) {
		var err error
		if g.names, err = key.names(); err != nil {
			return nil, err
		}
		l, err := g.names.listen(leaderName)
		if err == nil {
			if g.fds, err = create(); err == nil {
				g.leader = l
				if fd := createEstate(); fd >= 0 {
					g.fds = append(g.fds, fd)
				}
				g.openEstate()
				return g, nil
			}
			l.Close()
			if now := time.Now(); now.Sub(looked) > foreignPause {
				if foreign++; g.names.inUse() || key.comingOrGoing() {
					foreign = 0
				}
				looked = now
			}
			if !errors.Is(err, unix.EADDRINUSE) || time.Since(begin) > patience || foreign == foreignLooks {
				return nil, err
			}
			continue
		}
		g.watched, g.fds, err = g.names.ask(askJoin)
		if err == nil {
			g.openEstate()
			return g, nil
		}
		if errors.Is(err, errOtherUser) || time.Since(begin) > patience {
			return nil, err
		}
	}
}

// estateFD is the index of the estate's descriptor, behind those of the sockets.
const estateFD = Lanes + 1

func (g *Group) openEstate() {
	if len(g.fds) > estateFD {
		g.estate = openEstate(g.fds[estateFD])
	}
}

func sleepAbout(d time.Duration) { time.Sleep(d/2 + rand.N(d)) }

// FD is the descriptor of a socket of the group, GSI or a lane's. It belongs to the group.
func (g *Group) FD(i int) int { return g.fds[i] }

// Start begins to take part. onLead is called once, by any goroutine, when it is up to this process to read the socket of QP 1.
func (g *Group) Start(onLead func()) {
	g.onLead = onLead
	g.mu.Lock()
	l, c := g.leader, g.watched
	g.mu.Unlock()
	if l != nil {
		onLead()
		g.done.Go(func() { g.serve(l) })
		return
	}
	g.done.Go(func() { g.follow(c) })
}

// follow waits for the end of the leader and then sees to it that there is one. Whoever binds the name first is the next.
func (g *Group) follow(c *net.UnixConn) {
	for {
		_, _ = c.Read(make([]byte, 1)) // nothing comes but the end
		c.Close()
		for {
			l, err := g.names.listen(leaderName)
			if err == nil {
				if !g.lead(l) {
					l.Close()
					return
				}
				g.onLead()
				g.settle()
				g.serve(l)
				return
			}
			if c, _, err = g.names.ask(askFollow); err == nil {
				break
			}
			if g.isClosed() {
				return
			}
			sleepAbout(pause)
		}
		if !g.watch(c) {
			c.Close()
			return
		}
	}
}

func (g *Group) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *Group) lead(l *listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader, g.watched = l, nil
	return !g.closed
}

func (g *Group) watch(c *net.UnixConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched = c
	return !g.closed
}

// serve is the leader's work.
func (g *Group) serve(l *listener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			c.Close()
			return
		}
		g.followers[c] = struct{}{}
		g.done.Go(func() { g.answer(c) })
		g.mu.Unlock()
	}
}

// answer gives one process what it asks for, and keeps the connection so that it notices our end.
func (g *Group) answer(c *net.UnixConn) {
	defer func() {
		g.mu.Lock()
		delete(g.followers, c)
		g.mu.Unlock()
		c.Close()
		g.settle()
	}()
	cred, err := peerOf(c)
	if err != nil || !g.names.admit(cred) {
		return
	}
	var question [1]byte
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(question[:]); err != nil {
		return
	}
	var rights []byte
	if question[0] == askJoin {
		rights = unix.UnixRights(g.fds...)
	}
	if _, _, err := c.WriteMsgUnix([]byte{answerYes}, rights, nil); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	_, _ = c.Read(question[:])
}

// ask puts a question to the leader. The connection is good for noticing its end.
func (n names) ask(question byte) (_ *net.UnixConn, fds []int, err error) {
	c, err := net.DialUnix("unix", nil, n.addr("unix", leaderName))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	cred, err := peerOf(c)
	if err != nil {
		return nil, nil, err
	}
	if !n.admit(cred) {
		return nil, nil, n.otherUser(cred)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte{question}); err != nil {
		return nil, nil, err
	}
	answer, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*(estateFD+1)))
	got, oobn, _, _, err := c.ReadMsgUnix(answer, oob)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil, fmt.Errorf("link/udp: process %d, which leads at %v, has not answered for %v (is it stopped?): let it go on, or end it: %w",
			cred.Pid, n.key.Addr, patience, unix.ETIMEDOUT)
	}
	if err != nil {
		return nil, nil, err
	}
	if fds, err = descriptors(oob[:oobn]); err != nil {
		return nil, nil, err
	}
	if got != 1 || answer[0] != answerYes || question == askJoin && len(fds) != Lanes+1 && len(fds) != estateFD+1 {
		closeFDs(fds)
		return nil, nil, fmt.Errorf("link/udp: process %d, which leads at %v, gave %d sockets instead of %d: %w",
			cred.Pid, n.key.Addr, len(fds), Lanes+1, unix.EPROTO)
	}
	return c, fds, c.SetDeadline(time.Time{})
}

func descriptors(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			closeFDs(fds)
			return nil, err
		}
		fds = append(fds, got...)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds, nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// peerOf tells whose process is at the other end.
func peerOf(c syscall.Conn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return nil, e
	}
	return cred, err
}

// Stop ends taking part; onLead is not called any more. The descriptors stay open.
func (g *Group) Stop() {
	g.mu.Lock()
	if !g.closed {
		close(g.stopped)
	}
	g.closed = true
	if g.leader != nil {
		g.leader.Close()
	}
	if g.watched != nil {
		g.watched.Close()
	}
	for c := range g.followers {
		c.Close()
	}
	g.mu.Unlock()
	g.done.Wait()
	if g.estate != nil {
		g.estate.close() // while we have the lanes: their next owners write there
	}
}

// Close stops, and closes the descriptors: nobody watches or reads them any more.
func (g *Group) Close() {
	g.Stop()
	closeFDs(g.fds)
}

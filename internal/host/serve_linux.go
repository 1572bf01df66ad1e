package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/peeruser"
)

// A Server is verbena serve at one address: a leader whose members belong to several users.
type Server struct {
	leader *leader
	ln     *listener
	run    int // descriptors of RunDir and of the directory in it
	dir    int
	sign   *net.UnixConn // nil: another process has the name
	locked bool          // dir is this server's
	name   string
	done   sync.WaitGroup
}

// Sharing describes the users that may attach to verbena serve.
type Sharing struct {
	Mode fs.FileMode // permissions: a class (owner, group, others) with any bit may attach
	GID  int         // the group of users; -1: that of the process
	UID  int         // the user that the process changes to
}

// Serve creates the directory of a group and opens all sockets. It removes the files of an earlier verbena serve.
// EADDRINUSE means that another process has the address.
func Serve(key Key, cfg Config, with Sharing) (_ *Server, err error) {
	s := &Server{run: -1, dir: -1}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.makeDir(key, with); err != nil {
		return nil, err
	}
	st := &openStore{}
	s.leader = newLeader(key, &cfg, st, nil, nil)
	s.leader.table.account = peeruser.Account
	for s.leader.slotSockets() < Slots {
		if err := s.leader.grow(); err != nil {
			return nil, err
		}
	}
	if err := s.listen(with); err != nil {
		return s, err
	}
	s.sign = key.putSign()
	return s, nil
}

// makeDir creates the directory and makes sure that no other user can write to it.
func (s *Server) makeDir(key Key, with Sharing) (err error) {
	if s.name, err = key.folder(); err != nil {
		return err
	}
	fail := func(err error) error {
		return fmt.Errorf("directory %s: %w (set %s, for all users, to use another one)", RunDir(), err, envRun)
	}
	if err := checkRunDir(); err != nil {
		return err
	}
	if err := os.MkdirAll(RunDir(), 0o755); err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if s.run, st, err = openDir(unix.AT_FDCWD, RunDir()); err != nil {
		return err
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fail(fmt.Errorf("is of user %s: must be root's or this user's: %w", userName(int(st.Uid)), unix.EPERM))
	}
	if s.dir, err = makeOpen(s.run, s.name); err != nil {
		return fail(err)
	}
	if err = unix.Fstat(s.dir, &st); err != nil {
		return fail(err)
	}
	path := filepath.Join(RunDir(), s.name)
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() && int(st.Uid) != with.UID {
		return fmt.Errorf("directory %s is of user %s: must be root's or this user's; remove it: "+
			"%w", path, userName(int(st.Uid)), unix.EPERM)
	}
	if err := unix.Flock(s.dir, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another verbena serve shares %v (it has locked %s); stop that one to start this one: %w",
			key.Addr, path, unix.EADDRINUSE)
	}
	if !lockedHere(s.dir, s.run, s.name) {
		closeFDs([]int{s.dir, s.run}) // another verbena serve has just removed it
		s.dir, s.run = -1, -1
		return s.makeDir(key, with)
	}
	s.locked = true
	if err := unix.Fchmod(s.dir, 0o700); err != nil {
		return fail(err)
	}
	s.removeLeftovers(s.name)
	_ = unix.Unlinkat(s.dir, socketName, 0) // left by a killed process
	return nil
}

// makeOpen opens a directory, which it creates if it does not exist.
func makeOpen(at int, name string) (dir int, err error) {
	if err := unix.Mkdirat(at, name, 0o700); err != nil && err != unix.EEXIST {
		return -1, err
	}
	return openToLock(at, name)
}

// listen creates the socket, and opens the directory, without the right to write, to the users that may attach.
func (s *Server) listen(with Sharing) error {
	path := fmt.Sprintf("/proc/self/fd/%d/%s", s.dir, socketName)
	l, err := net.ListenUnix(seqpacket, &net.UnixAddr{Name: path, Net: seqpacket})
	if err != nil {
		cause := err
		var errno unix.Errno // the rest of the text is the path of the descriptor
		if errors.As(err, &errno) {
			cause = errno
		}
		return fmt.Errorf("socket in %s: %w", filepath.Join(RunDir(), s.name), cause)
	}
	fdset.AddConn(l)
	l.SetUnlinkOnClose(false)
	s.ln = listenerOver(l, -1)
	dirMode, socketMode := uint32(0o700), uint32(0o600)
	if with.Mode&0o070 != 0 {
		dirMode, socketMode = dirMode|0o010, socketMode|0o060
	}
	if with.Mode&0o007 != 0 {
		dirMode, socketMode = dirMode|0o001, socketMode|0o006
	}
	if err := unix.Fchownat(s.dir, socketName, with.UID, with.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("changing the owner of the socket: %w", err)
	}
	if err := unix.Fchmodat(s.dir, socketName, socketMode, 0); err != nil { // no other user can write to the directory
		return err
	}
	if err := unix.Fchown(s.dir, with.UID, with.GID); err != nil {
		return fmt.Errorf("changing the owner of the directory: %w", err)
	}
	return unix.Fchmod(s.dir, dirMode)
}

// Start starts serving. It calls Config.Lead before it returns.
func (s *Server) Start() error {
	if err := s.leader.startReading(); err != nil {
		return err
	}
	s.done.Go(func() { s.leader.serve(s.ln) })
	return nil
}

// Forward forwards a packet from the socket of QP 1. It returns false if the packet has no destination.
func (s *Server) Forward(m Mail) bool { return s.leader.forward(m) }

// Screen reports whether a datagram for QP 1 is a request for a member, and whether it is dropped because that member
// gets too many.
func (s *Server) Screen(mad []byte) (foreign, drop bool) { return s.leader.screen(mad) }

// MailDropped returns how many packets for members were dropped because these did not take them.
func (s *Server) MailDropped() uint64 { return s.leader.sorter.dropped.Load() }

// Multicast returns the IPv6 groups that members have joined.
func (s *Server) Multicast() []netip.Addr { return *s.leader.multicast.Load() }

// Stop ends serving. The descriptors stay open.
func (s *Server) Stop() {
	if s.ln != nil {
		s.ln.Close()
		_ = unix.Unlinkat(s.dir, socketName, 0)
	}
	s.done.Wait() // no connection is accepted afterwards
	if s.leader != nil {
		s.leader.stop()
	}
}

// Close stops the server, and removes the directory as far as the user of the process can.
func (s *Server) Close() {
	s.Stop()
	if s.leader != nil {
		s.leader.store.close()
		s.leader = nil
	}
	if s.sign != nil {
		s.sign.Close()
		s.sign = nil
	}
	if s.locked { // else another server may not have made its socket yet
		_ = unix.Unlinkat(s.run, s.name, unix.AT_REMOVEDIR)
	}
	closeFDs([]int{s.dir, s.run})
	s.dir, s.run, s.ln, s.locked = -1, -1, nil, false
}

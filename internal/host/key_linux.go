package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/environ"
	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// A Key identifies a group.
type Key struct {
	Port uint16
	Addr netip.Addr
	Zone int // index of the interface of a link-local address, else 0
}

const (
	envRun     = "VERBENA_RUN"
	defaultRun = "/run/verbena"

	socketName = "socket"
)

// RunDir returns the directory of verbena serve: VERBENA_RUN, or /run/verbena. An elevated program must not attach to
// the server of the user who started it, who would receive its packets.
func RunDir() string {
	if dir := environ.Path(envRun); dir != "" {
		return dir
	}
	return defaultRun
}

// checkRunDir refuses a directory that depends on the working directory: verbena serve and the programs have different
// ones, so they would not find each other.
func checkRunDir() error {
	if dir := RunDir(); !filepath.IsAbs(dir) {
		return fmt.Errorf("link/udp: %s=%q: must be an absolute path: %w", envRun, dir, unix.EINVAL)
	}
	return nil
}

// name returns the name of the abstract socket of the leader. The kernel frees it when the leader ends. Abstract
// names belong to a network namespace, as addresses do.
func (k Key) name() string {
	return fmt.Sprintf("@verbena%d/%d/%v/%d", version, k.Port, k.Addr, k.Zone)
}

// folder returns the name, in RunDir, of the directory of a group that verbena serve leads. It contains the inode
// number of the network namespace, because addresses belong to a namespace and files do not.
func (k Key) folder() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "", fmt.Errorf("link/udp: stat of the network namespace: %w", err)
	}
	return fmt.Sprintf("%d-%d-%v-%d", st.Ino, k.Port, k.Addr, k.Zone), nil
}

// IsServeDir reports whether a path is that of a directory that verbena serve has made for an address, whatever its
// network namespace and its VERBENA_RUN.
func IsServeDir(path string, at netip.AddrPort) bool {
	if !filepath.IsAbs(path) { // sockets have a name that is no path
		return false
	}
	inode, rest, _ := strings.Cut(filepath.Base(path), "-")
	_, err := strconv.ParseUint(inode, 10, 64)
	return err == nil && strings.HasPrefix(rest, fmt.Sprintf("%d-%v-", at.Port(), at.Addr().WithZone("")))
}

// seqpacket is the network of sockets that keep message boundaries.
const seqpacket = "unixpacket"

// listen makes this process the leader of the processes of its user. It returns EADDRINUSE if another process leads.
func (k Key) listen() (*listener, error) {
	fdset.Opening()
	defer fdset.Opened()
	l, err := net.ListenUnix(seqpacket, &net.UnixAddr{Name: k.name(), Net: seqpacket})
	if err != nil {
		return nil, err
	}
	fdset.AddConn(l)
	return listenerOver(l, os.Geteuid()), nil
}

// dial connects to the leader of the processes of this user.
func (k Key) dial() (*net.UnixConn, *unix.Ucred, error) {
	c, err := dialUnix(&net.UnixAddr{Name: k.name(), Net: seqpacket})
	if err != nil {
		return nil, nil, err
	}
	cred, err := peeruser.Of(c)
	if err == nil && !peeruser.Own(cred) {
		err = k.otherUser(cred)
	}
	if err != nil {
		_ = untrusted.Close(c)
		return nil, nil, err
	}
	return c, cred, nil
}

// dialUnix connects to a socket. It does not wait: if the listener has no room, it fails.
func dialUnix(at *net.UnixAddr) (*net.UnixConn, error) {
	fdset.Opening()
	defer fdset.Opened()
	c, err := net.DialUnix(at.Net, nil, at)
	if err == nil {
		fdset.AddConn(c)
	}
	return c, err
}

// dialServe connects to verbena serve. The connection is nil if it does not lead at the address. dialServe checks
// that only root and the user of verbena serve can write to the directories.
func (k Key) dialServe() (*net.UnixConn, *unix.Ucred, error) {
	name, err := k.folder()
	if err != nil {
		return nil, nil, nil // without /proc only processes of one user can share
	}
	if err := checkRunDir(); err != nil {
		return nil, nil, err
	}
	run, runStat, err := openDir(unix.AT_FDCWD, RunDir())
	if err != nil {
		return nil, nil, ignoreMissing(err)
	}
	defer unix.Close(run)
	dir, dirStat, err := openDir(run, name)
	if err != nil {
		return nil, nil, ignoreMissing(err)
	}
	defer unix.Close(dir)
	path := filepath.Join(RunDir(), name)
	if owner := runStat.Uid; owner != 0 && owner != dirStat.Uid && int(owner) != os.Geteuid() {
		return nil, nil, fmt.Errorf("link/udp: %s is of user %s and %s is not: remove one of them, or set %s: %w",
			RunDir(), userName(int(owner)), path, envRun, unix.EPERM)
	}
	c, err := dialUnix(&net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, socketName), Net: seqpacket})
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil, nil, nil // it has ended
	case errors.Is(err, unix.EACCES):
		return nil, nil, k.notAdmitted(path, &dirStat)
	case err != nil:
		return nil, nil, fmt.Errorf("link/udp: connecting to verbena serve in %s: %w", path, err)
	}
	cred, err := peeruser.Of(c)
	if err == nil && cred.Uid != 0 && cred.Uid != dirStat.Uid {
		err = fmt.Errorf("link/udp: the process that listens in %s is of user %s: must be root's or the directory's "+
			"owner's: %w",
			path, userName(int(cred.Uid)), unix.EPERM)
	}
	if err != nil {
		_ = untrusted.Close(c)
		return nil, nil, err
	}
	return c, cred, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// openDir opens a directory that is not a symbolic link and that only its owner can write to. It does not need the
// right to read it.
func openDir(at int, name string) (fd int, st unix.Stat_t, err error) {
	fd, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, fmt.Errorf("link/udp: directory %s of verbena serve: %w", name, err)
	}
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&0o022 != 0 {
		err = fmt.Errorf("link/udp: directory %s of verbena serve has mode %04o: must not be writable by others than "+
			"its owner: %w",
			name, st.Mode&0o7777, unix.EPERM)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// errOtherUser matches errors after which a retry is useless.
var errOtherUser = errors.New("the address of another user")

func (k Key) otherUser(cred *unix.Ucred) error {
	return fmt.Errorf("link/udp: %v is used by processes of user %s (one is process %d), and this one is user %s's: "+
		"run both as the same user, let users share the address (verbena serve), or use another one "+
		"(VERBENA_DEVICES=NAME=ADDR): %w",
		netip.AddrPortFrom(k.Addr, k.Port), userName(int(cred.Uid)), cred.Pid, userName(os.Geteuid()), accessError{})
}

// accessError is EACCES and matches errOtherUser.
type accessError struct{}

func (accessError) Error() string        { return unix.EACCES.Error() }
func (accessError) Is(target error) bool { return target == errOtherUser } //nolint:errorlint // it is this
func (accessError) Unwrap() error        { return unix.EACCES }

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// notAdmitted is the error of a user whom the directory of verbena serve does not admit.
func (k Key) notAdmitted(path string, dir *unix.Stat_t) error {
	const groupMayEnter = 0o010
	e := &NotAdmittedError{}
	who := ""
	if dir.Mode&groupMayEnter != 0 {
		e.Group = groupName(dir.Gid)
		who = " (group " + e.Group + ")"
	}
	e.text = fmt.Sprintf("link/udp: verbena serve shares %v among those that %s admits%s, and user %s is not one of "+
		"them: become one, or use another address (VERBENA_DEVICES=NAME=ADDR): %v",
		netip.AddrPortFrom(k.Addr, k.Port), path, who, userName(os.Geteuid()), unix.EACCES)
	return e
}

func groupName(gid uint32) string {
	id := strconv.Itoa(int(gid))
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

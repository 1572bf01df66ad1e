package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Key names a group.
type Key struct {
	Port uint16
	Addr netip.Addr
	Zone int // index of the interface, for addresses that mean something only on one link
}

// names is where the sockets of a group have their names: in the kernel, for processes of one user, or in a folder, whose
// permissions decide who may take part.
type names struct {
	key Key
	dir string // "": in the kernel
}

const (
	envRun     = "VERBENA_RUN"
	defaultRun = "/run/verbena"
)

// RunDir is where the folders of groups are that users share: VERBENA_RUN, or /run/verbena.
func RunDir() string {
	if dir := os.Getenv(envRun); dir != "" {
		return dir
	}
	return defaultRun
}

// folder is that of a group. Its name has the network namespace, which addresses belong to, and files do not.
func (k Key) folder() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "", fmt.Errorf("link/udp: which network namespace this is: %w", err)
	}
	return filepath.Join(RunDir(), fmt.Sprintf("%d-%d-%v-%d", st.Ino, k.Port, k.Addr, k.Zone)), nil
}

// names finds out where they are.
func (k Key) names() (names, error) {
	dir, err := k.folder()
	if err != nil {
		return names{key: k}, nil // without /proc nobody can share among users
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return names{key: k}, nil
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}
	if err != nil {
		return names{}, fmt.Errorf("link/udp: %v belongs to those who may write to %s (verbena serve)%s, and user %s may not: become one of them, "+
			"use another address (VERBENA_DEVICES=NAME=ADDR), or remove the folder if nothing uses it: %w",
			netip.AddrPortFrom(k.Addr, k.Port), dir, groupOf(info), userName(os.Geteuid()), err)
	}
	return names{k, dir}, nil
}

// name is that of a socket: an abstract one, or a file. The number after verbena changes with what is spoken there.
func (n names) name(what string) string {
	if n.dir != "" {
		return filepath.Join(n.dir, what)
	}
	return fmt.Sprintf("@verbena2/%d/%v/%d/%s", n.key.Port, n.key.Addr, n.key.Zone, what)
}

func (n names) addr(network, what string) *net.UnixAddr {
	return &net.UnixAddr{Name: n.name(what), Net: network}
}

// admit tells whether a process of that user may be in the group. Who could reach a socket in the folder may.
func (n names) admit(cred *unix.Ucred) bool { return n.dir != "" || int(cred.Uid) == os.Geteuid() }

// lock makes a name in a folder ours until the file is closed, or the process ends; EADDRINUSE if it is another's. What the last owner
// left there is removed. Abstract names need no lock.
func (n names) lock(what string) (*os.File, error) {
	if n.dir == "" {
		return nil, nil
	}
	f, err := os.OpenFile(n.name(what)+".lock", os.O_RDONLY|os.O_CREATE, 0o660)
	if errors.Is(err, fs.ErrPermission) {
		return nil, unix.EADDRINUSE // somebody is just creating it
	}
	if err != nil {
		return nil, err
	}
	_ = f.Chmod(0o660) // whatever the umask; only the file's owner can
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, unix.EADDRINUSE
	}
	if err := os.Remove(n.name(what)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openUp lets the others of the folder reach a socket.
func (n names) openUp(what string) error {
	if n.dir == "" {
		return nil
	}
	return os.Chmod(n.name(what), 0o660)
}

// listener is the leader's.
type listener struct {
	*net.UnixListener
	lock *os.File
}

func (n names) listen(what string) (*listener, error) {
	lock, err := n.lock(what)
	if err != nil {
		return nil, err
	}
	l := &listener{lock: lock}
	if l.UnixListener, err = net.ListenUnix("unix", n.addr("unix", what)); err == nil {
		if err = n.openUp(what); err == nil {
			return l, nil
		}
		l.UnixListener.Close()
	}
	if lock != nil {
		lock.Close()
	}
	return nil, err
}

// Close gives the name back.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// errOtherUser says that trying again will not help.
var errOtherUser = errors.New("another user's")

func (n names) otherUser(cred *unix.Ucred) error {
	return fmt.Errorf("link/udp: %v is used by processes of user %s (one is process %d), and this one is user %s's: "+
		"run both as the same user, let users share the address (verbena serve), or use another one (VERBENA_DEVICES=NAME=ADDR): %w",
		netip.AddrPortFrom(n.key.Addr, n.key.Port), userName(int(cred.Uid)), cred.Pid, userName(os.Geteuid()), accessError{})
}

// accessError is EACCES, and errOtherUser.
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

// groupOf says which group of users a folder belongs to, if that can be seen.
func groupOf(info fs.FileInfo) string {
	if info == nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(id); err == nil {
		id = g.Name
	}
	return ", group " + id
}

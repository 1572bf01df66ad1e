package host

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// locks are record locks on the memory of last wills, which every process of a group has open: the owner of slot n
// locks byte n, and the listener on a service ID locks a byte far behind the end. The kernel releases them with their
// process, whichever process leads, and other users cannot take them.
//
// Record locks belong to a process, and closing any descriptor of the file releases all of them. So the links of this
// process share one locks, which keeps all descriptors of the file until its last user has closed it.
type locks struct {
	key  lockKey
	fd   int // the first one
	fds  []int
	refs int
	mine map[int64]struct{}
}

type lockKey struct{ dev, ino uint64 }

var (
	locksMu  sync.Mutex // guards the following, and the fields of each of its values
	allLocks = map[lockKey]*locks{}
)

// openLocks takes over a descriptor.
func openLocks(fd int) (*locks, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	k := lockKey{uint64(st.Dev), st.Ino} //nolint:unconvert // 32 bits on some platforms
	locksMu.Lock()
	defer locksMu.Unlock()
	l := allLocks[k]
	if l == nil {
		l = &locks{key: k, fd: fd, mine: map[int64]struct{}{}}
		allLocks[k] = l
	}
	l.fds = append(l.fds, fd)
	l.refs++
	return l, nil
}

func (l *locks) close() {
	locksMu.Lock()
	defer locksMu.Unlock()
	if l.refs--; l.refs == 0 {
		closeFDs(l.fds)
		delete(allLocks, l.key)
	}
}

const serviceLocks = 1 << 62

// serviceLock returns the offset of the lock of a service ID.
func serviceLock(id uint64) int64 { return serviceLocks | int64((id^id>>62)&(serviceLocks-1)) }

// lock locks a byte. It returns false if this or another process has locked it.
func (l *locks) lock(at int64) bool {
	locksMu.Lock()
	defer locksMu.Unlock()
	if _, ok := l.mine[at]; ok || !l.set(unix.F_WRLCK, at) {
		return false
	}
	l.mine[at] = struct{}{}
	return true
}

func (l *locks) unlock(at int64) {
	locksMu.Lock()
	defer locksMu.Unlock()
	if _, ok := l.mine[at]; ok {
		delete(l.mine, at)
		l.set(unix.F_UNLCK, at)
	}
}

func (l *locks) set(what int16, at int64) bool {
	for {
		lk := unix.Flock_t{Type: what, Start: at, Len: 1}
		if err := unix.FcntlFlock(uintptr(l.fd), unix.F_SETLK, &lk); err != unix.EINTR {
			return err == nil
		}
	}
}

// taken reports whether any process, including this one, has locked a byte. If that cannot be found out it is taken.
func (l *locks) taken(at int64) bool {
	mine, other, err := l.owner(at)
	return mine || other || err != nil
}

// foreign reports whether another process has locked a byte.
func (l *locks) foreign(at int64) bool {
	_, other, _ := l.owner(at)
	return other
}

// owner reports whether this process or another one has locked a byte.
func (l *locks) owner(at int64) (mine, other bool, err error) {
	locksMu.Lock()
	defer locksMu.Unlock()
	if _, mine = l.mine[at]; mine {
		return true, false, nil
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err = unix.FcntlFlock(uintptr(l.fd), unix.F_GETLK, &lk)
	return false, err == nil && lk.Type != unix.F_UNLCK, err
}

// dropFDs closes descriptors that another process sent, except those of the memory of last wills: closing one would
// release the locks.
func dropFDs(fds []int) {
	locksMu.Lock()
	defer locksMu.Unlock()
	for _, fd := range fds {
		if l := locksOn(fd); l != nil {
			l.fds = append(l.fds, fd)
			continue
		}
		unix.Close(fd)
	}
}

// ownFD is fdset.Own for a descriptor that another process sent. One of memory with locks keeps its number: to raise it
// is to close it.
func ownFD(fd int) int {
	locksMu.Lock() // no lock is taken between duplicate and close
	defer locksMu.Unlock()
	if locksOn(fd) != nil {
		fdset.Add(fd)
		return fd
	}
	return fdset.Own(fd)
}

// locksOn returns the locks on the file of a descriptor, nil if there are none. locksMu is held.
func locksOn(fd int) *locks {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil
	}
	return allLocks[lockKey{uint64(st.Dev), st.Ino}] //nolint:unconvert // see openLocks
}

package host

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// A store keeps the sockets of a group open. They must outlive every process: when a socket closes, the kernel moves
// the last socket of the group to its index.
type store interface {
	// add keeps the next sockets, chunk of them, and closes the descriptors of the caller.
	add(fds []int) error
	// count returns the number of sockets.
	count() int
	// use calls f with descriptors of the sockets from first, a multiple of chunk, on. They are closed
	// afterwards; f may duplicate them.
	use(first int, f func(fds []int)) error
	close()
}

// chunk is the number of sockets that are opened at a time. One message carries their descriptors.
const chunk = 16

// A vault is a store that all processes of a user hold with one descriptor: one end of a socket pair. The sockets are
// in its queue, as descriptors in messages that are never received. MSG_PEEK duplicates them. The first message holds
// the other end, which add sends to. Only the leader uses a vault, since the offset of the next peek belongs to the
// socket.
type vault struct {
	fd  int
	num int // sockets
}

// newVault creates a vault. Each message has one byte, so that message n begins at offset n.
func newVault() (*vault, error) {
	fdset.Opening()
	defer fdset.Opened()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("link/udp: socketpair: %w", err)
	}
	p[0], p[1] = fdset.Own(p[0]), fdset.Own(p[1])
	err = unix.Sendmsg(p[0], []byte{0}, unix.UnixRights(p[0]), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	unix.Close(p[0])
	if err == nil {
		err = unix.SetsockoptInt(p[1], unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0)
	}
	if err != nil {
		unix.Close(p[1])
		return nil, fmt.Errorf("link/udp: keeping sockets in a queue: %w", err)
	}
	return &vault{fd: p[1]}, nil
}

// openVault takes over a descriptor from another process, and counts the sockets.
func openVault(fd int) (*vault, error) {
	v := &vault{fd: fd}
	for n := 1; ; n++ {
		var got int
		switch err := v.peek(n, func(fds []int) { got = len(fds) }); err {
		case nil:
			v.num += got
		case unix.EAGAIN:
			return v, nil
		default:
			return nil, fmt.Errorf("link/udp: reading the sockets of the address: %w", err)
		}
	}
}

func (v *vault) count() int { return v.num }
func (v *vault) close()     { unix.Close(v.fd) }

func (v *vault) add(fds []int) error {
	defer closeFDs(fds)
	err := unix.EINVAL
	if e := v.peek(0, func(end []int) {
		if len(end) == 1 {
			e := unix.Sendmsg(end[0], []byte{0}, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			err, _ = e.(unix.Errno) //nolint:errorlint // the package returns nothing else
		}
	}); e != nil {
		return e
	}
	if err == unix.ETOOMANYREFS {
		return fmt.Errorf("link/udp: more sockets for the address than ulimit -n allows the user to keep in queues: "+
			"raise it: %w", unix.EMFILE)
	}
	if err != 0 {
		return fmt.Errorf("link/udp: keeping sockets in a queue: %w", err)
	}
	v.num += len(fds)
	return nil
}

func (v *vault) use(first int, f func([]int)) error {
	if first < 0 || first >= v.num {
		return unix.EINVAL
	}
	return v.peek(1+first/chunk, f)
}

// peek calls f with the descriptors of message n, and closes them. It returns EAGAIN if there is no such message. f
// must not block, and not call fdset.Opening.
func (v *vault) peek(n int, f func([]int)) error {
	fdset.Opening()
	defer fdset.Opened()
	if err := unix.SetsockoptInt(v.fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, n); err != nil {
		return err
	}
	oob := make([]byte, unix.CmsgSpace(4*chunk))
	for {
		_, oobn, flags, _, err := unix.Recvmsg(v.fd, make([]byte, 1), oob,
			unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		fds, err := rights(oob[:oobn])
		defer closeFDs(fds)
		if err != nil {
			return err
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return unix.EMFILE // this process has no room for the descriptors
		}
		f(fds)
		return nil
	}
}

// An openStore is the store of verbena serve, which keeps all sockets open.
type openStore struct{ fds []int }

func (r *openStore) count() int { return len(r.fds) }
func (r *openStore) close()     { closeFDs(r.fds) }

func (r *openStore) add(fds []int) error {
	r.fds = append(r.fds, fds...)
	return nil
}

func (r *openStore) use(first int, f func([]int)) error {
	if first < 0 || first >= len(r.fds) {
		return unix.EINVAL
	}
	f(r.fds[first:min(first+chunk, len(r.fds))])
	return nil
}

// rights returns the descriptors in control messages.
func rights(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			closeFDs(fds)
			return nil, err
		}
		for i, fd := range got {
			got[i] = ownFD(fd)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

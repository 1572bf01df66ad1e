package shm

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// Frames are sent over the unix socket of a ring set. Sender and receiver are those of the ring set.
//
//	sender    hello    number of ports, size of rings, magic
//	receiver  welcome  number of ports, number of ports with ranges of QP numbers, magic; descriptors of heads and status
//	receiver  numbers  a port, and the first and the last number of its range
//	sender    rings    descriptor of rings; a number that acknowledgements of counted requests have
//	receiver  ready
//	sender    wake     a port of the receiver that sleeps: there are packets for it
//	sender    share    memory that packets may refer to: its size in pages, its number, its descriptor
//	receiver  shared   whether the receiver can read the share: its number, and as port 1 or 0
//	sender    memory   packets may refer to the sender's memory: the address of heads in it
//	receiver  shared   whether the receiver can read the sender's memory: number 0, and as port 1 or 0
//	sender    unshare  the receiver can unmap the share: its number
//	both      bye      the device was closed, or the handshake is refused
const (
	frameHello uint8 = iota + 1
	frameWelcome
	frameRings
	frameReady
	frameWake
	frameBye
	frameNumbers
	frameShare
	frameShared
	frameUnshare
	frameMemory
)

const (
	frameLen = 16
	// magic identifies the protocol: "VRBshm", version 3.
	magic = 0x5652_4273_686d_0003

	handshakeTimeout = 2 * time.Second // limits the handshake
	maxFDs           = 2               // descriptors with one frame
)

type frame struct {
	kind uint8
	port uint8
	size uint32
	word uint64
}

func (f frame) bytes() (b [frameLen]byte) {
	b[0], b[1] = f.kind, f.port
	binary.LittleEndian.PutUint32(b[4:], f.size)
	binary.LittleEndian.PutUint64(b[8:], f.word)
	return b
}

func parseFrame(b []byte) frame {
	return frame{kind: b[0], port: b[1], size: binary.LittleEndian.Uint32(b[4:]), word: binary.LittleEndian.Uint64(b[8:])}
}

// sendFrame writes one frame and its descriptors.
func sendFrame(c *net.UnixConn, f frame, files ...*os.File) error {
	var oob []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		oob = unix.UnixRights(fds...)
	}
	b := f.bytes()
	return fdset.Send(c, b[:], oob)
}

// expect reads one frame, which must have the given kind and number of descriptors.
func expect(c *net.UnixConn, kind uint8, files int) (f frame, fds []int, err error) {
	defer func() {
		if err != nil {
			closeFDs(fds)
			fds = nil
		}
	}()
	var b [frameLen]byte
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	for got := 0; got < frameLen; {
		n, oobn, flags, _, err := c.ReadMsgUnix(b[got:], oob)
		if oobn > 0 {
			fds = append(fds, rights(oob[:oobn])...)
		}
		switch {
		case err != nil:
			return f, fds, fmt.Errorf("link/shm: handshake: %w", err)
		case n == 0:
			return f, fds, fmt.Errorf("link/shm: the peer ended the handshake: %w", syscall.ECONNRESET)
		case flags&unix.MSG_CTRUNC != 0 || len(fds) > files:
			return f, fds, fmt.Errorf("link/shm: the peer passed too many descriptors: %w", syscall.EPROTO)
		}
		got += n
	}
	f = parseFrame(b[:])
	if f.kind != kind || len(fds) != files {
		return f, fds, fmt.Errorf("link/shm: the peer sent a frame of kind %d with %d descriptors instead of %d with %d: %w",
			f.kind, len(fds), kind, files, syscall.EPROTO)
	}
	return f, fds, nil
}

// rights returns the descriptors in a control message.
func rights(oob []byte) (fds []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		fds[i] = fdset.Own(fd)
	}
	return fds
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// ownOnly makes a listener end the connections of other users, without a goroutine for each. Their handshakes would
// fail anyway: this side and theirs call sameUser.
func ownOnly(l *untrusted.Listener) { l.Admit = peeruser.Own }

// sameUser returns an error unless a process of this user opened the other end of a connection.
func sameUser(c *net.UnixConn) error {
	cred, err := peeruser.Of(c)
	if err != nil {
		return err
	}
	if !peeruser.Own(cred) {
		return fmt.Errorf("link/shm: the peer process %d belongs to user %d, not to %d: %w", cred.Pid, cred.Uid,
			os.Geteuid(), syscall.EACCES)
	}
	return nil
}

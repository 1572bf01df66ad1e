package socket

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Prot is the access that a peer has to mapped memory.
type Prot int

// The protections (PROT_NONE, PROT_WRITE).
const (
	ProtNone  Prot = 0 // nothing: the memory is for this side only
	ProtWrite Prot = 2 // write to it
)

// IOMap registers a buffer with the connection's device and, with ProtWrite, lets the peer write to it with IOWrite
// (riomap): at offset, or with offset -1 at an offset that IOMap chooses. It returns the offset. The peer knows the
// map once it has received data that was sent after it. The peer's writes change the buffer at any time, until
// IOUnmap or the end of the connection. EINVAL for another protection, without a connection, and for a buffer of 4 GiB
// or more that the peer may write to, and for an empty one. ENOMEM if the RDMAIOMapSize maps of the peer, 0 by default,
// are in use, or if the connection has had half as many as the peer's RDMARQSize, those that have ended included.
func (s *Socket) IOMap(buf []byte, prot Prot, offset int64) (int64, error) {
	st, err := s.stream()
	switch {
	case errors.Is(err, syscall.ENOTCONN):
		return -1, sock.Fail("riomap", syscall.EINVAL, "the socket must be connected: it has no device")
	case err != nil:
		return -1, err
	}
	if prot&^ProtWrite != 0 {
		return -1, sock.Fail("riomap", syscall.EINVAL, "protection %#x: must be PROT_NONE 0 or PROT_WRITE 2", int(prot))
	}
	n, err := st.IOMap(buf, prot == ProtWrite, offset)
	return n, closedIsBad(err)
}

// IOUnmap ends the map of exactly this buffer (riounmap); EINVAL if there is none. The peer is not notified: if it
// writes there, the connection fails.
func (s *Socket) IOUnmap(buf []byte) error {
	st, err := s.stream()
	if err != nil {
		return err
	}
	return closedIsBad(st.IOUnmap(buf))
}

// IOWrite writes b to memory that the peer has mapped at offset (riowrite), and returns how much it has written:
// less than len(b) if no map covers the rest. The peer is not notified; data of a later Send arrives after it. The
// errors are those of Send.
func (s *Socket) IOWrite(b []byte, offset int64, flags Flags) (int, error) {
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.IOWrite(b, offset, s.waitMode(flags))
	return n, sendError(n, err)
}

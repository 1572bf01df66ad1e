package socket

import (
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Msg is the argument of SendMsg and of RecvMsg (struct msghdr).
type Msg struct {
	Name    netip.AddrPort // the destination or the source
	IOV     [][]byte
	Control []byte // ENOTSUP
}

// SendMsg sends several buffers, with no data of other calls in between (rsendmsg); on a datagram socket as one
// message. The errors are those of SendTo. ENOTSUP if Control is not empty.
func (s *Socket) SendMsg(m *Msg, flags Flags) (int, error) {
	if len(m.Control) > 0 {
		return 0, sock.Fail("rsendmsg", syscall.ENOTSUP, "msg_control must be empty")
	}
	if s.dg != nil {
		var b []byte
		for _, v := range m.IOV {
			if mr.Readable(v) < len(v) {
				return 0, sock.Fail("rsendmsg", syscall.EFAULT, "a buffer is not mapped")
			}
			b = append(b, v...)
		}
		return s.SendTo(b, flags, m.Name)
	}
	if m.Name.IsValid() {
		return 0, syscall.EISCONN
	}
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.SendAll(m.IOV, s.waitMode(flags))
	return n, sendError(n, err)
}

// RecvMsg receives into the first buffer that is not empty, and sets Name to the source (rrecvmsg), as the C function
// does. For a stream that is a short read; of a datagram the part that does not fit into this buffer is lost. ENOTSUP
// if Control is not empty.
func (s *Socket) RecvMsg(m *Msg, flags Flags) (n int, err error) {
	if len(m.Control) > 0 {
		return 0, sock.Fail("rrecvmsg", syscall.ENOTSUP, "msg_control must be empty")
	}
	for _, v := range m.IOV {
		if len(v) > 0 {
			n, m.Name, err = s.RecvFrom(v, flags)
			break
		}
	}
	return n, err
}

// Writev sends several buffers (rwritev).
func (s *Socket) Writev(iov [][]byte) (int, error) { return s.SendMsg(&Msg{IOV: iov}, 0) }

// Readv receives into the first buffer that is not empty (rreadv).
func (s *Socket) Readv(iov [][]byte) (int, error) { return s.RecvMsg(&Msg{IOV: iov}, 0) }

package socket

import "github.com/verbena-rdma/verbena/rsocket/internal/sock"

// Flags change what one call of Send or Recv does, with Linux's values on every system.
type Flags int

// The flags (MSG_PEEK and so on). Others have no effect.
const (
	MsgPeek     Flags = 0x02 // Recv: the data stays in the socket
	MsgWaitAll  Flags = 0x100
	MsgDontWait Flags = 0x40 // this call does not wait
)

// recv returns the flags of a receive.
func (f Flags) recv() (r sock.RecvFlags) {
	if f&MsgPeek != 0 {
		r |= sock.Peek
	}
	if f&MsgWaitAll != 0 {
		r |= sock.WaitAll
	}
	return r
}

package sock

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// RecvFlags are the flags of a receive.
type RecvFlags uint8

// The flags.
const (
	Peek    RecvFlags = 1 << iota // the data stays in the socket
	WaitAll                       // the call waits until the buffer of the program is full
)

// Recv reads at least one byte unless b is empty. 0 without an error is the end of the stream.
func (st *Stream) Recv(b []byte, flags RecvFlags, p WaitMode) (n int, err error) {
	if err := st.reading.lockMode(p.Nonblock); err != nil {
		return 0, err
	}
	defer st.reading.unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	peek, seen := flags&Peek != 0, 0 // bytes that are looked at already and stay
	for {
		if err := st.readable(&p); err != nil {
			return n, err
		}
		got, ok := st.take(b[n:], seen, peek)
		if n += got; peek {
			seen = n
		}
		if !ok {
			return n, errBuffer
		}
		switch {
		case n == len(b), n > 0 && flags&WaitAll == 0, st.m.ReadShut() || st.m.PeerShut():
			return n, nil
		case st.state == streamFailed:
			return n, st.err
		}
		if err := st.pause(&st.read.waiter, &p); err != nil {
			return n, err
		}
	}
}

// readable waits until the connection is made, and returns the reason why nothing can be read. mu is held.
//
// +checklocks:st.mu
func (st *Stream) readable(p *WaitMode) error {
	if err := st.connected(&st.read.waiter, p); err != nil {
		return err
	}
	switch {
	case st.closed:
		return net.ErrClosed
	case st.state == streamFailed && st.m.Readable() == 0:
		return st.err
	case p.expired():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// connected waits until the connection is made or has failed (R-SOCK-13). mu is held.
//
// +checklocks:st.mu
func (st *Stream) connected(w *Waiter, p *WaitMode) error {
	for st.state == streamConnecting && !st.closed {
		if err := st.pause(w, p); err != nil {
			return err
		}
	}
	switch {
	case st.closed:
		return net.ErrClosed
	case st.state == streamNew, st.state == streamFailed && !st.established:
		if st.err != nil {
			return st.err
		}
		return syscall.ENOTCONN
	}
	return nil
}

// errBuffer is the error of a call whose buffer the program cannot access so.
var errBuffer = Fail("rsocket", syscall.EFAULT, "the buffer is not mapped, or cannot be written to")

// take copies data after the first skip bytes, and reports whether it could write to b. mu is held, but not during long
// copies.
//
// +checklocks:st.mu
func (st *Stream) take(b []byte, skip int, peek bool) (n int, ok bool) {
	for ok = true; n < len(b); {
		s := st.m.Peek(skip, len(b)-n)
		if s.Len <= 0 {
			break
		}
		from := st.res.rbuf[s.Off : s.Off+s.Len]
		if s.Len > unlockedCopy {
			st.mu.Unlock()
			ok = mr.TryCopy(b[n:], from)
			st.mu.Lock()
			if st.m.ReadShut() { // the data was dropped meanwhile, and may have been overwritten
				break
			}
		} else {
			ok = mr.TryCopy(b[n:], from)
		}
		if !ok {
			break
		}
		n += s.Len
		if peek {
			skip += s.Len
		} else {
			st.m.Consume(s.Len)
		}
	}
	if !peek && st.state == streamConnected {
		st.postControls()
	}
	return n, ok
}

// unlockedCopy is the number of bytes from which a copy runs without mu.
const unlockedCopy = 1024

// startWriting waits for the connection. The caller has locked writing. mu is held.
//
// +checklocks:st.mu
func (st *Stream) startWriting(p *WaitMode) error {
	if err := st.connected(&st.write.waiter, p); err != nil {
		return err
	}
	st.progress() // the peer may have closed (R-IO-04)
	return nil
}

// Send writes all of b. If it must not wait it writes the part for which there is room, and returns EAGAIN too.
func (st *Stream) Send(b []byte, p WaitMode) (n int, err error) {
	if err := st.writing.lockMode(p.Nonblock); err != nil {
		return 0, err
	}
	defer st.writing.unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.startWriting(&p); err != nil {
		return 0, err
	}
	return st.put(partsOfOne(b), &p)
}

// SendAll writes several buffers, with no data of other calls in between. The receiver sees them as one buffer: a
// message of DATA has the bytes of as many as there is room for.
func (st *Stream) SendAll(iov [][]byte, p WaitMode) (n int, err error) {
	if err := st.writing.lockMode(p.Nonblock); err != nil {
		return 0, err
	}
	defer st.writing.unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.startWriting(&p); err != nil {
		return 0, err
	}
	return st.put(partsOf(iov), &p)
}

// put is Send for the owner of writing. mu is held, but not while it waits or during long copies.
//
// +checklocks:st.mu
func (st *Stream) put(b parts, p *WaitMode) (n int, err error) {
	for {
		ready := st.look(&b)
		if err := st.writable(); err != nil {
			return n, err
		}
		if b.left == 0 {
			return n, nil
		}
		if ready == 0 {
			return n, errBuffer
		}
		if p.expired() {
			return n, os.ErrDeadlineExceeded
		}
		if d, ok := st.nextData(ready); ok {
			st.postData(&d, verbs.WRRDMAWriteWithImm, &b)
			n += d.N
			continue
		}
		if err := st.pause(&st.write.waiter, p); err != nil {
			return n, err
		}
	}
}

// look returns how many of the next bytes can be read, of those that a message may have. mu is held, but not while it
// looks at many.
//
// +checklocks:st.mu
func (st *Stream) look(b *parts) int {
	most := max(len(st.res.sbuf), st.opts.Inline)
	if b.left <= unlockedCopy {
		return b.look(most)
	}
	st.mu.Unlock()
	n := b.look(most)
	st.mu.Lock()
	return n
}

// writable returns the reason why nothing can be sent. mu is held.
//
// +checklocks:st.mu
func (st *Stream) writable() error {
	switch {
	case st.closed:
		return net.ErrClosed
	case st.state == streamFailed:
		return st.err
	case st.m.WriteShut() || st.stopWriting:
		return syscall.EPIPE
	case st.m.Disconnected():
		return syscall.ECONNRESET
	}
	return nil
}

// nextData returns the next DATA message, after the IO maps that must precede it. mu is held.
//
// +checklocks:st.mu
func (st *Stream) nextData(n int) (rs.Data, bool) {
	st.postMaps()
	if st.m.MapsPending() {
		return rs.Data{}, false
	}
	return st.m.NextData(n, rs.MaxData, st.opts.Inline)
}

// postData takes the bytes of d from b to the send buffer, or inline, and posts them. mu is held, but not during long
// copies.
//
// +checklocks:st.mu
func (st *Stream) postData(d *rs.Data, op verbs.WROpcode, b *parts) {
	wr := verbs.SendWR{Opcode: op, ImmData: d.Word, RemoteAddr: d.Remote.Addr, RKey: d.Remote.Key,
		WRID: wrData | uint64(d.Buffered())}
	var ok bool
	switch {
	case d.Buffered() == 0:
		wr.Flags = verbs.SendInline
		wr.Inline, ok = b.take(d.N, &st.res.inline)
	case d.N > unlockedCopy:
		st.mu.Unlock()
		ok = st.res.fill(d, b)
		st.mu.Lock()
	default:
		ok = st.res.fill(d, b)
	}
	if !ok { // it could be read before: a thread of the program unmaps it
		st.fail(errBuffer)
		_ = st.id.Disconnect(background)
		return
	}
	wr.SGList = st.res.pieces(d) // none of inline data
	st.postMessage(&wr)
}

// fill copies the bytes of d from b to the pieces of the send buffer that d names, and reports whether it could read
// them.
func (r *resources) fill(d *rs.Data, b *parts) bool {
	ok := b.copyTo(r.sbuf[d.Buf[0].Off:][:d.Buf[0].Len])
	return b.copyTo(r.sbuf[d.Buf[1].Off:][:d.Buf[1].Len]) && ok
}

// copyBuffers are the buffers of CopyFrom and CopyTo.
var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

const copyBuffer = 64 << 10

// CopyFrom sends the data of r until its end.
func (st *Stream) CopyFrom(r io.Reader, p func() WaitMode) (n int64, err error) {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for {
		got, rerr := r.Read(buf[:])
		if got > 0 {
			sent, err := st.Send(buf[:got], p())
			n += int64(sent)
			if err != nil {
				return n, err
			}
		}
		switch {
		case rerr == io.EOF:
			return n, nil
		case rerr != nil:
			return n, rerr
		}
	}
}

// CopyTo writes received data to w until the end of the stream.
func (st *Stream) CopyTo(w io.Writer, p func() WaitMode) (n int64, err error) {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for {
		got, err := st.Recv(buf[:], 0, p())
		if got == 0 || err != nil {
			return n, err
		}
		put, err := w.Write(buf[:got])
		n += int64(put)
		if err == nil && put < got {
			err = io.ErrShortWrite
		}
		if err != nil {
			return n, err
		}
	}
}

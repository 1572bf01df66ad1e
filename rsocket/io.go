package rsocket

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// Flags of Send and Recv, with the values that the system has for sockets.
type Flags int

// The flags. Others have no effect.
const (
	MsgPeek     Flags = 0x02 // Recv: the data stays
	MsgWaitAll  Flags = 0x100
	MsgDontWait Flags = 0x40 // this call does not wait
)

// lockSide takes the right to read or to write.
func (st *stream) lockSide(nonblock bool, read bool) error {
	t := &st.writing
	if read {
		t = &st.reading
	}
	if !nonblock {
		t.take()
	} else if !t.tryTake() {
		return errWouldBlock
	}
	return nil
}

// recv reads at least one byte, unless b is empty: 0 and no error means that there is nothing more to come.
func (st *stream) recv(b []byte, flags Flags, p patience) (n int, err error) {
	if err := st.lockSide(p.nonblock, true); err != nil {
		return 0, err
	}
	defer st.reading.give()
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		if err := st.readable(&p); err != nil {
			return n, err
		}
		skip := 0
		if flags&MsgPeek != 0 {
			skip = n
		}
		if !st.m.EOF() && st.m.Readable() > skip && n < len(b) {
			got := st.take(b[n:], skip, flags&MsgPeek != 0)
			n += got
		}
		switch {
		case n == len(b), st.m.EOF() && st.m.Readable() <= skip, n > 0 && flags&MsgWaitAll == 0:
			return n, nil
		}
		if st.state == streamFailed && st.m.Readable() <= skip {
			return n, st.err
		}
		if err := st.pause(&st.read.waiter, &p); err != nil {
			return n, err
		}
	}
}

// readable waits until the connection is made, and tells why there is nothing to read.
func (st *stream) readable(p *patience) error {
	if err := st.connected(&st.read.waiter, p); err != nil {
		return err
	}
	switch {
	case st.closed:
		return net.ErrClosed
	case st.state == streamFailed && (st.m.Readable() == 0 || st.m.EOF()):
		return st.err
	case p.expired():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// connected waits until the connection is made or has failed for good (R-SOCK-13).
func (st *stream) connected(w *waiter, p *patience) error {
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

// take copies what is there after the first skip bytes. mu is held, but not while it copies much.
func (st *stream) take(b []byte, skip int, peek bool) (n int) {
	for n < len(b) {
		s := st.m.Peek(skip, len(b)-n)
		if s.Len <= 0 {
			break
		}
		from := st.res.rbuf[s.Off : s.Off+s.Len]
		if s.Len > unlockedCopy {
			st.mu.Unlock()
			copy(b[n:], from)
			st.mu.Lock()
			if st.m.ReadShut() { // it was thrown away meanwhile, and may have been overwritten
				break
			}
		} else {
			copy(b[n:], from)
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
	return n
}

// unlockedCopy is how many bytes are worth letting others go on meanwhile.
const unlockedCopy = 1024

// startWriting waits for the right to write and for the connection, and takes mu. endWriting gives both back.
func (st *stream) startWriting(p *patience) error {
	if err := st.lockSide(p.nonblock, false); err != nil {
		return err
	}
	st.mu.Lock()
	if err := st.connected(&st.write.waiter, p); err != nil {
		st.endWriting()
		return err
	}
	st.progress() // the peer may have gone (R-IO-04)
	return nil
}

func (st *stream) endWriting() {
	st.mu.Unlock()
	st.writing.give()
}

// send writes all of b, unless it must not wait.
func (st *stream) send(b []byte, p patience) (n int, err error) {
	if err := st.startWriting(&p); err != nil {
		return 0, err
	}
	defer st.endWriting()
	return st.put(b, &p)
}

// sendAll writes what several buffers hold, and nobody else's data in between.
func (st *stream) sendAll(iov [][]byte, p patience) (n int, err error) {
	if err := st.startWriting(&p); err != nil {
		return 0, err
	}
	defer st.endWriting()
	for _, b := range iov {
		k, err := st.put(b, &p)
		n += k
		if err != nil || k < len(b) {
			return n, err
		}
	}
	return n, nil
}

// put is send for whoever has the right to write. mu is held, but not while it waits or copies much.
func (st *stream) put(b []byte, p *patience) (n int, err error) {
	for {
		if err := st.writable(); err != nil {
			return n, err
		}
		if n == len(b) {
			return n, nil
		}
		if p.expired() {
			return n, os.ErrDeadlineExceeded
		}
		if d, ok := st.nextData(len(b) - n); ok {
			st.postData(&d, verbs.WRRDMAWriteWithImm, b[n:n+d.N])
			n += d.N
			continue
		}
		if err := st.pause(&st.write.waiter, p); err != nil {
			if n > 0 && err == errWouldBlock {
				err = nil // R-IO-08
			}
			return n, err
		}
	}
}

// writable tells why nothing can be sent.
func (st *stream) writable() error {
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

// nextData takes a DATA message, after the IO maps that must come before it.
func (st *stream) nextData(n int) (rs.Data, bool) {
	st.postMaps()
	if st.m.MapsPending() {
		return rs.Data{}, false
	}
	return st.m.NextData(n, rs.MaxData, st.opts.Inline)
}

// postData copies b to where d has room for it and posts it. mu is held, but not while it copies much.
func (st *stream) postData(d *rs.Data, op verbs.WROpcode, b []byte) {
	wr := verbs.SendWR{Opcode: op, ImmData: d.Word, RemoteAddr: d.Remote.Addr, RKey: d.Remote.Key, WRID: wrData | uint64(d.Buffered())}
	if d.Buffered() == 0 {
		wr.Flags, wr.Inline = verbs.SendInline, b
		st.post(&wr)
		return
	}
	unlock := len(b) > unlockedCopy
	if unlock {
		st.mu.Unlock()
	}
	for _, s := range d.Buf {
		b = b[copy(st.res.sbuf[s.Off:s.Off+s.Len], b):]
	}
	if unlock {
		st.mu.Lock()
	}
	wr.SGList = st.res.pieces(d)
	st.post(&wr)
}

// copyBuffers are for copying between a stream and something else.
var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

const copyBuffer = 64 << 10

// readFrom sends what r has until its end.
func (st *stream) readFrom(r io.Reader, p func() patience) (n int64, err error) {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for {
		got, rerr := r.Read(buf[:])
		if got > 0 {
			sent, err := st.send(buf[:got], p())
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

// writeTo hands what comes to w until the end of the stream.
func (st *stream) writeTo(w io.Writer, p func() patience) (n int64, err error) {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for {
		got, err := st.recv(buf[:], 0, p())
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

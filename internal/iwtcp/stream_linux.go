package iwtcp

import (
	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// Bounds of a turn of a QP.
const (
	rxTurn    = 512 << 10 // bytes
	txTurn    = 1 << 20   // bytes
	directMin = 4 << 10   // shorter pieces are copied
	// rxAfter bounds what is read behind the memory of Direct, which is copied: it has the next header.
	rxAfter = 2 << 10
)

// onEvent runs the QP for an event of one of its sockets, or none. The device's turn is held.
func (q *QP) onEvent(buf []byte, socket int, readable bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m == nil {
		return
	}
	if q.near.Duplex != nil {
		q.onNear(socket, readable)
	}
	if (readable || q.near.in) && q.fd >= 0 {
		q.receive(buf)
	}
	q.drive()
	if q.near.in && !q.eof && !q.near.hot && !q.near.Sleep() {
		q.loop.again(q)
	}
}

// receive reads the socket, a bounded number of bytes. The set is one of levels: it reports again what is left.
//
// +checklocks:q.mu
func (q *QP) receive(buf []byte) {
	q.Memory.RLock()
	defer q.Memory.RUnlock()
	whole, direct := buf, true
	for left := rxTurn; left > 0 && !q.eof; {
		var place []byte
		if buf = whole; q.near.in && !q.params.CRC {
			buf = whole[:nearPiece]
		}
		if d := q.m.Direct(); d != nil {
			if direct && len(d) >= directMin {
				place, buf = d, buf[:min(len(buf), rxAfter)]
			} else {
				q.m.Placed(0)
			}
		}
		n, err := q.read(place, buf)
		if n > 0 {
			k := min(n, len(place))
			q.traceData(false, place[:k], buf[:n-k])
		}
		if place != nil {
			q.m.Placed(min(max(n, 0), len(place)))
		}
		switch {
		case n > 0:
			if n > len(place) {
				q.m.Feed(buf[:n-len(place)])
				q.onSignal()
			}
			left -= n
			if n < len(place)+len(buf) {
				return // the socket was empty a moment ago
			}
		case err == unix.EAGAIN:
			return
		case err == unix.EINTR:
		case err == unix.EFAULT && place != nil:
			direct = false // Feed finds where the memory ends
		default:
			q.eof = true
			if err == nil {
				q.traceEnd(false, pcap.FlagFIN)
			} else {
				q.traceEnd(false, pcap.FlagRST)
			}
			q.end(err)
		}
	}
}

// read reads into memory of the program, and what follows into buf.
//
// +checklocks:q.mu
func (q *QP) read(place, buf []byte) (int, error) {
	if q.near.in {
		return q.readNear(place, buf)
	}
	if place == nil {
		return unix.Read(q.fd, buf)
	}
	return readv(q.fd, place, buf)
}

// drive sends what can be sent, and does what follows from the machine's state.
//
// +checklocks:q.mu
func (q *QP) drive() {
	if q.m == nil {
		return
	}
	q.m.OnPosted()
	if q.fd >= 0 && !q.shut {
		q.send()
	}
	if q.m.State() == transport.RTS && (q.SendCQ.Broken() || q.RecvCQ.Broken()) {
		q.m.Move()
		q.Up.Event(transport.EventQPFatal)
	}
	q.settle()
	q.offerNear()
}

// send writes to the socket, a bounded number of bytes.
//
// +checklocks:q.mu
func (q *QP) send() {
	q.Memory.RLock()
	defer q.Memory.RUnlock()
	sent, full := 0, false
	for sent < txTurn && !full {
		q.vec = q.m.Vectors(q.vec[:0])
		if len(q.vec) == 0 {
			break
		}
		n, err := q.write(q.vec)
		if err == nil {
			q.traceVectors(q.vec, n)
		}
		clear(q.vec)
		switch err {
		case nil:
			q.m.Written(n)
			q.switchOut()
			sent += n
		case unix.EINTR:
		case unix.EAGAIN:
			full = true
		case unix.EFAULT:
			q.m.OnFault()
		default:
			q.flush()
			q.lose(err)
			return
		}
	}
	q.flush()
	q.m.Keep()
	more := sent >= txTurn || q.m.Draining()
	if full && q.near.out {
		full, more = false, more || !q.near.AwaitRoom()
	}
	if full != q.room || q.eof != q.deaf { // the end of the peer's direction would be an event for ever
		q.room, q.deaf = full, q.eof
		q.loop.watch(q.fd, !q.eof, full)
	}
	if more {
		q.loop.again(q)
	}
}

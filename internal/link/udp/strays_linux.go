package udp

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
)

// Strays are read at a limited rate: strayRate packets per second after a burst of strayBurst. Others are lost in their
// socket and cost this process nothing.
const (
	strayRate  = 2000
	strayBurst = 256
)

// A strayReader is the goroutine that reads the socket of strays of an address: packets for QP 1 that nobody has asked
// for, as requests for service IDs that no process has claimed. It passes them on like mail of other processes.
type strayReader struct {
	link *Link
	rx   rxSocket
	file *os.File
	port port // has the state that receiving needs, and no sockets
	end  chan struct{}
	done sync.WaitGroup
}

// readStrays starts a strayReader at port p, which takes over the socket.
func (p *port) readStrays(rx rxSocket) {
	r := &strayReader{link: p.link, rx: rx, end: make(chan struct{})}
	r.file = os.NewFile(uintptr(rx.fd), "udp")
	raw, err := r.file.SyscallConn()
	if err != nil {
		r.file.Close()
		return
	}
	r.port = port{link: p.link, index: -1}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strays = append(p.strays, r)
	r.done.Go(func() { r.run(raw, &p.counters) })
}

// run reads until the reader is closed.
func (r *strayReader) run(raw syscall.RawConn, counters *counters) {
	var b link.RxBatch
	m := r.port.buffersOf(&b)
	v := &r.port.verify
	limit := strayLimit{start: time.Now()}
	for {
		b.Packets = b.Packets[:0]
		err := raw.Read(func(uintptr) bool {
			return r.port.recvFrom(&r.rx, &b, m, 0, len(m.hdrs)) > 0
		})
		if err != nil {
			return
		}
		seen := v.seen
		v.flush(counters, 0) // the port counts the packets when it takes them
		for i := range b.Packets {
			p := &b.Packets[i]
			m := host.Mail{Packet: bytes.Clone(p.Data), Src: p.Src, Dst: p.Dst, TClass: p.TClass, HopLimit: p.HopLimit}
			if !r.rx.group.Forward(m) { // to a process that has just stopped listening, or listens since now
				r.link.mail.put(m)
			}
		}
		if wait := limit.spend(int(seen), time.Since(limit.start)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-r.end:
				return
			}
		}
	}
}

// close ends the reader and closes its socket.
func (r *strayReader) close() {
	close(r.end)
	r.file.Close()
	r.done.Wait()
}

// A strayLimit is a token bucket.
type strayLimit struct {
	start time.Time
	full  time.Duration // when the bucket is full again, since start
}

// spend takes n packets out at a time, and returns the wait before the next ones.
func (l *strayLimit) spend(n int, now time.Duration) time.Duration {
	const each = time.Second / strayRate
	l.full = max(l.full, now) + time.Duration(n)*each
	return max(0, l.full-now-strayBurst*each)
}

package udp

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// lender sends trains without a copy in the kernel: vmsplice puts the pages that a train lies in into a pipe, and splice moves them from there into
// the datagram that a sendmsg of nothing has begun. The receiver copies out of these very pages.
//
// On the loopback interface that copy costs more than all the rest of sending, since the kernel writes it into pages that
// the receiver has just read on another core. Toward an adapter it does not, and there a socket's queue could hold pages for long, so it is not done.
type lender struct {
	mem  []byte
	pipe [2]int
	room int // bytes of whole pages that the pipe holds
	on   bool
}

const (
	// leastLoan is the length of a train from which three system calls are worth it.
	leastLoan = 32 << 10
	// leastPipe is what a pipe must hold, in whole pages: nearly every train.
	leastPipe = 64 << 10

	largePage = 2 << 20
)

// lends tells whether there is a point in it. What it goes by, MSG_SPLICE_PAGES, is of Linux 6.5.
func (l *Link) lends() bool {
	return l.loopback && l.gso.Load() && !l.cfg.NoLend && kernelAtLeast(6, 5)
}

// Lend gives memory for batches; see link.Lender.
func (p *port) Lend(n, size int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lender.mem != nil || !p.link.lends() {
		return nil
	}
	return p.lender.open(n * size)
}

// open gives n bytes that begin with a page.
func (l *lender) open(n int) []byte {
	if err := unix.Pipe2(l.pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	room, err := unix.FcntlInt(uintptr(l.pipe[1]), unix.F_GETPIPE_SZ, 0) // less for users who have very many pipes
	if err == nil && room >= leastPipe {
		l.mem, err = unix.Mmap(-1, 0, n+largePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	}
	if err != nil || l.mem == nil {
		closeFDs(l.pipe[:]...)
		return nil
	}
	at := -int(uintptr(unsafe.Pointer(&l.mem[0]))) & (largePage - 1)
	mem := l.mem[at : at+n : at+n]
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a train is one piece then, and not one for each page
	l.room, l.on = room, true
	return mem
}

// close gives everything back. Pages that are on their way live on until they arrive.
func (l *lender) close() {
	if l.mem == nil {
		return
	}
	_ = unix.Munmap(l.mem)
	closeFDs(l.pipe[:]...)
	*l = lender{}
}

// lends tells whether message m of a batch may go without a copy.
func (p *port) lends(b *link.TxBatch, m int) bool {
	v, l := &p.sender.iovs[m], &p.lender
	if !b.Keep || !l.on || v.Len < leastLoan {
		return false
	}
	inPage := int(uintptr(unsafe.Pointer(v.Base))) & (os.Getpagesize() - 1)
	return inPage+int(v.Len) <= l.room
}

// lend sends message m of a batch without a copy. It returns false, and nothing is sent, if that does not work; for good if it cannot be tried again.
func (p *port) lend(m int) bool {
	l, s := &p.lender, &p.sender
	h, v := s.hdrs[m].Msghdr, s.iovs[m]
	h.SetIovlen(0)
	if errno := sendmsg(s.socket.fd, &h, unix.MSG_MORE); errno != 0 {
		return false
	}
	if l.fill(&v) && l.empty(s.socket.fd, int(v.Len)) {
		return true
	}
	l.on = false // the pipe may hold something
	h.Control = nil
	h.SetControllen(0)
	sendmsg(s.socket.fd, &h, 0) // ends the datagram, of which there is nothing
	return false
}

// fill puts the pages of v into the pipe.
func (l *lender) fill(v *unix.Iovec) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(l.pipe[1]), uintptr(unsafe.Pointer(v)), 1, 0, 0, 0)
	return errno == 0 && int(n) == int(v.Len)
}

// empty moves the n bytes in the pipe into the datagram that a socket has begun, and sends it.
func (l *lender) empty(fd, n int) bool {
	k, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(l.pipe[0]), 0, uintptr(fd), 0, uintptr(n), 0)
	return errno == 0 && int(k) == n
}

// sendmsg does not block; see recvmmsg.
func sendmsg(fd int, h *unix.Msghdr, flags int) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), uintptr(flags))
	return errno
}

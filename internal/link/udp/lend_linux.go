package udp

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link"
)

// A lender sends GSO runs without a copy in the kernel: vmsplice moves the pages of a run into a pipe, and splice
// moves them from there into the datagram that an empty sendmsg has begun. The receiver copies out of the same pages.
//
// On the loopback interface that copy costs more than all other work of sending, since the kernel writes into pages
// that the receiver has just read on another core. Toward an adapter it does not, and pages could stay in the queue
// of a socket for long, so nothing is lent there.
type lender struct {
	maps [][]byte // each contains a region of whole large pages, whose beginning Lend returned
	pipe [2]int   // open if there are maps
	room int      // capacity of the pipe in bytes of whole pages
	on   bool
}

const (
	// minLend is the length of a GSO run, in bytes, from which three system calls cost less than the copy.
	minLend = 32 << 10
	// minPipe is the least capacity of the pipe, in bytes of whole pages: nearly every run fits.
	minPipe = 64 << 10

	largePage = 2 << 20
)

// lends reports whether lending is possible and useful. It needs MSG_SPLICE_PAGES, of Linux 6.5.
func (l *Link) lends() bool {
	return l.loopback && l.gso.Load() && !l.cfg.NoLend && kernelAtLeast(6, 5)
}

// Capabilities returns link.Lender.
func (p *port) Capabilities() link.PortCapabilities {
	l := p.link
	return link.PortCapabilities{Lender: p, AckLast: l.loopback && l.gso.Load() && l.gro.Load()}
}

// Lend returns memory for batches; see link.Lender.
func (p *port) Lend(size int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.link.lends() || !p.lender.open() {
		return nil
	}
	return p.lender.add(size)
}

// Renew replaces the pages of memory that Lend returned; see link.Lender.
func (p *port) Renew(mem []byte, large bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.lender.maps {
		if whole := largePages(m); &whole[0] == &mem[0] {
			return renew(whole, large)
		}
	}
	return false
}

// renew drops the pages of a mapping. The kernel keeps those that are in a pipe or in a socket until they are read;
// no process can write them any more. MADV_DONTNEED would refuse memory that mlockall has locked.
func renew(mem []byte, large bool) bool {
	if unix.Madvise(mem, unix.MADV_DONTNEED_LOCKED) != nil {
		return false
	}
	advise(mem, large)
	return true
}

// advise requests large pages, with which a run is one piece, or small ones, with which each page is one.
func advise(mem []byte, large bool) {
	advice := unix.MADV_NOHUGEPAGE
	if large {
		advice = unix.MADV_HUGEPAGE
	}
	_ = unix.Madvise(mem, advice)
}

// open opens the pipe, and reports whether it is open.
func (l *lender) open() bool {
	if len(l.maps) > 0 {
		return l.on
	}
	if err := unix.Pipe2(l.pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return false
	}
	l.pipe[0], l.pipe[1] = fdset.Raise(l.pipe[0]), fdset.Raise(l.pipe[1])
	room, err := unix.FcntlInt(uintptr(l.pipe[1]), unix.F_GETPIPE_SZ, 0) // less for users with very many pipes
	if err != nil || room < minPipe {
		closeFDs(l.pipe[:]...)
		return false
	}
	fdset.Add(l.pipe[0])
	l.room, l.on = room, true
	return true
}

// add allocates memory that begins with a large page.
func (l *lender) add(size int) []byte {
	whole := (size + largePage - 1) &^ (largePage - 1)
	m, err := unix.Mmap(-1, 0, whole+largePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		if len(l.maps) == 0 {
			closeFDs(l.pipe[:]...)
			*l = lender{}
		}
		return nil
	}
	l.maps = append(l.maps, m)
	mem := largePages(m)
	advise(mem, true)
	return mem[:size:size]
}

// largePages returns the whole large pages of a mapping that is one large page longer.
func largePages(m []byte) []byte {
	at := -int(uintptr(unsafe.Pointer(&m[0]))) & (largePage - 1)
	n := len(m) - largePage
	return m[at : at+n : at+n]
}

// close frees everything. The kernel keeps pages in flight until they arrive.
func (l *lender) close() {
	if len(l.maps) == 0 {
		return
	}
	for _, m := range l.maps {
		_ = unix.Munmap(m)
	}
	closeFDs(l.pipe[:]...)
	*l = lender{}
}

// lends reports whether message m of a batch can be sent without a copy.
func (p *port) lends(b *link.TxBatch, m int) bool {
	v, l := &p.sender.iovs[m], &p.lender
	if !b.Keep || !l.on || v.Len < minLend {
		return false
	}
	inPage := int(uintptr(unsafe.Pointer(v.Base))) & (os.Getpagesize() - 1)
	return inPage+int(v.Len) <= l.room
}

// lend sends message m of a batch without a copy. It returns false if that failed and nothing was sent. It disables
// the lender if a part was sent into the pipe.
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
	sendmsg(s.socket.fd, &h, 0) // ends the empty datagram
	return false
}

// fill moves the pages of v into the pipe.
func (l *lender) fill(v *unix.Iovec) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(l.pipe[1]), uintptr(unsafe.Pointer(v)), 1, 0, 0, 0)
	return errno == 0 && int(n) == int(v.Len)
}

// empty moves the n bytes in the pipe into the begun datagram of a socket, and sends it.
func (l *lender) empty(fd, n int) bool {
	k, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(l.pipe[0]), 0, uintptr(fd), 0, uintptr(n), 0)
	return errno == 0 && int(k) == n
}

// sendmsg does not block; see recvmmsg.
func sendmsg(fd int, h *unix.Msghdr, flags int) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), uintptr(flags))
	return errno
}

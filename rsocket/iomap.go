package rsocket

import (
	"net"
	"os"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// Prot says what a peer may do with mapped memory.
type Prot int

// The protections (PROT_NONE, PROT_WRITE).
const (
	ProtNone  Prot = 0 // nothing: the memory is for this side only
	ProtWrite Prot = 2 // write to it
)

// publishing is what a stream has registered for IOMap.
type publishing struct {
	maps []mapping
	ever int // IO maps that were told to the peer; each costs a credit for good (W-RS-22)
}

// mapping is a registered buffer.
type mapping struct {
	buf    []byte
	mr     *verbs.MR
	offset int64
	index  int // of the peer's table; -1 for memory of this side only
}

func (p *publishing) release() {
	for _, m := range p.maps {
		_ = m.mr.Close()
	}
	p.maps = nil
}

// free is the lowest index below limit that is not in use; -1 if there is none.
func (p *publishing) free(limit int) int {
	used := make(map[int]bool, len(p.maps))
	for _, m := range p.maps {
		used[m.index] = true
	}
	for i := range limit {
		if !used[i] {
			return i
		}
	}
	return -1
}

// ioMap registers buf, and publishes it with ProtWrite.
func (st *stream) ioMap(buf []byte, prot Prot, offset int64) (int64, error) {
	const op = "riomap"
	st.mu.Lock()
	defer st.mu.Unlock()
	p := &st.publish
	switch {
	case st.closed:
		return -1, net.ErrClosed
	case prot&^ProtWrite != 0:
		return -1, fail(op, syscall.EINVAL, "protection %#x; NONE 0 and WRITE 2 are possible", int(prot))
	case st.state != streamConnected:
		return -1, fail(op, syscall.EINVAL, "the socket is not connected, so that there is no device")
	case len(buf) == 0:
		return -1, fail(op, syscall.EINVAL, "the buffer is empty")
	}
	m := mapping{buf: buf, index: -1, offset: offset}
	access := verbs.AccessLocalWrite
	if prot == ProtWrite {
		access |= verbs.AccessRemoteWrite
		if m.index = p.free(st.m.MaxMaps()); m.index < 0 {
			return -1, fail(op, syscall.ENOMEM, "%d IO maps are published; the peer has room for %d, as its Options.IOMaps or RDMAIOMapSize say", len(p.maps), st.m.MaxMaps())
		}
		if limit := st.m.MapBudget(); p.ever >= limit {
			return -1, fail(op, syscall.ENOMEM, "%d IO maps were published; more would use up the connection's credits", limit)
		}
	}
	mr, err := st.id.PD().RegMR(buf, access)
	if err != nil {
		return -1, err
	}
	if m.mr = mr; offset == -1 {
		m.offset = int64(mr.Addr())
	}
	p.maps = append(p.maps, m)
	if m.index >= 0 {
		p.ever++
		st.m.SetMap(m.index, rs.IOMap{Offset: uint64(m.offset), SGE: rs.SGE{Addr: mr.Addr(), Key: mr.RKey(), Length: uint32(len(buf))}})
	}
	return m.offset, nil
}

// ioUnmap takes a registration back.
func (st *stream) ioUnmap(buf []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	p := &st.publish
	for i, m := range p.maps {
		if len(m.buf) == len(buf) && unsafe.SliceData(m.buf) == unsafe.SliceData(buf) {
			if st.m.DropMap(m.index) {
				p.ever--
			}
			p.maps = append(p.maps[:i], p.maps[i+1:]...)
			return m.mr.Close()
		}
	}
	return fail("riounmap", syscall.EINVAL, "no mapping begins there and has %d bytes", len(buf))
}

// ioWrite writes b to the peer's memory. An offset that no map has ends it.
func (st *stream) ioWrite(b []byte, offset int64, p patience) (n int, err error) {
	if err := st.startWriting(&p); err != nil {
		return 0, err
	}
	defer st.endWriting()
	st.placing = true
	defer func() { st.placing = false }()
	for n < len(b) {
		if err := st.writable(); err != nil {
			return n, err
		}
		if p.expired() {
			return n, os.ErrDeadlineExceeded
		}
		st.postMaps()
		if !st.m.MapsPending() {
			d, found, ok := st.m.NextWrite(len(b)-n, uint64(offset)+uint64(n), rs.MaxData, st.opts.Inline)
			if !found {
				return n, nil
			}
			if ok {
				st.postData(&d, verbs.WRRDMAWrite, b[n:n+d.N])
				n += d.N
				continue
			}
		}
		if err := st.pause(&st.write.waiter, &p); err != nil {
			if n > 0 && err == errWouldBlock {
				err = nil
			}
			return n, err
		}
	}
	return n, nil
}

// postMaps posts the IO maps that the peer was not told yet. mu is held.
func (st *stream) postMaps() {
	for {
		m, ok := st.m.NextMap()
		if !ok {
			return
		}
		st.post(&verbs.SendWR{
			WRID: wrData, Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: m.Payload[:], ImmData: m.Word,
			RemoteAddr: m.Remote.Addr, RKey: m.Remote.Key,
		})
	}
}

// IOMap registers a buffer with the connection's device and, with ProtWrite, lets the peer write to it by IOWrite, at offset, or
// with offset -1 at one that is chosen (riomap). It returns the offset. The peer knows of it when it receives something that was sent
// afterwards. Data goes straight to the buffer, whenever the peer wants, until IOUnmap or the end of the connection. EINVAL for
// another protection, or without a connection; ENOMEM if the peer has no room for another map: its RDMAIOMapSize, 0 by default, is
// how many.
func (s *Socket) IOMap(buf []byte, prot Prot, offset int64) (int64, error) {
	st, err := s.stream()
	if err != nil {
		return -1, fail("riomap", syscall.EINVAL, "the socket is not connected, so that there is no device")
	}
	n, err := st.ioMap(buf, prot, offset)
	return n, closedIsBad(err)
}

// IOUnmap takes back what IOMap did with exactly this buffer (riounmap); else EINVAL. The peer is not told: if it writes there, the
// connection fails.
func (s *Socket) IOUnmap(buf []byte) error {
	st, err := s.stream()
	if err != nil {
		return err
	}
	return st.ioUnmap(buf)
}

// IOWrite writes b to memory that the peer has mapped at offset (riowrite). The peer is not told; what Send sends afterwards arrives
// later. It returns how much was written: less than all of b if no map has the rest.
func (s *Socket) IOWrite(b []byte, offset int64, flags Flags) (int, error) {
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.ioWrite(b, offset, s.patience(flags))
	return n, closedIsBad(err)
}

// IOMap is Socket.IOMap (riomap). The peer's Options.IOMaps is how many it takes.
func (c *Conn) IOMap(buf []byte, prot Prot, offset int64) (int64, error) {
	n, err := c.st.ioMap(buf, prot, offset)
	return n, c.fail("iomap", err)
}

// IOUnmap is Socket.IOUnmap (riounmap).
func (c *Conn) IOUnmap(buf []byte) error { return c.fail("iounmap", c.st.ioUnmap(buf)) }

// IOWrite is Socket.IOWrite (riowrite). The write deadline counts.
func (c *Conn) IOWrite(b []byte, offset int64) (int, error) {
	n, err := c.st.ioWrite(b, offset, c.writing())
	return n, c.fail("iowrite", err)
}

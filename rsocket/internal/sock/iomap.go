package sock

import (
	"math"
	"net"
	"os"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// publishing has the buffers that a stream has registered for IOMap.
type publishing struct {
	maps []mapping
	ever int // published IO maps; each uses up a credit forever (W-RS-22)
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
}

// free returns the lowest unused index below limit; -1 if there is none.
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

// IOMap registers buf. With remoteWrite it publishes the map to the peer.
func (st *Stream) IOMap(buf []byte, remoteWrite bool, offset int64) (int64, error) {
	const op = "riomap"
	st.mu.Lock()
	defer st.mu.Unlock()
	p := &st.publish
	switch {
	case st.closed:
		return -1, net.ErrClosed
	case st.state != streamConnected:
		return -1, Fail(op, syscall.EINVAL, "the socket must be connected: it has no device")
	case len(buf) == 0:
		return -1, Fail(op, syscall.EINVAL, "the buffer must not be empty")
	}
	m := mapping{buf: buf, index: -1, offset: offset}
	access := verbs.AccessLocalWrite
	if remoteWrite {
		if uint64(len(buf)) > math.MaxUint32 {
			return -1, Fail(op, syscall.EINVAL, "the buffer of %d bytes must have at most %d: the peer learns 32 bits",
				len(buf), uint32(math.MaxUint32))
		}
		access |= verbs.AccessRemoteWrite
		if m.index = p.free(st.m.MaxMaps()); m.index < 0 {
			return -1, Fail(op, syscall.ENOMEM,
				"%d IO maps are published: must be at most %d; the Options.IOMaps or RDMAIOMapSize of the peer sets the limit",
				len(p.maps), st.m.MaxMaps())
		}
		if limit := st.m.MapBudget(); p.ever >= limit {
			return -1, Fail(op, syscall.ENOMEM,
				"%d IO maps were published: must be at most half of the credits of the connection", limit)
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
		st.m.SetMap(m.index, rs.IOMap{Offset: uint64(m.offset),
			SGE: rs.SGE{Addr: mr.Addr(), Key: mr.RKey(), Length: uint32(len(buf))}})
	}
	return m.offset, nil
}

// IOUnmap ends a registration.
func (st *Stream) IOUnmap(buf []byte) error {
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
	return Fail("riounmap", syscall.EINVAL, "the buffer of %d bytes must be that of an IO map", len(buf))
}

// IOWrite writes b to the peer's memory, up to the first byte that no map covers.
func (st *Stream) IOWrite(b []byte, offset int64, p WaitMode) (n int, err error) {
	if err := st.writing.lockMode(p.Nonblock); err != nil {
		return 0, err
	}
	defer st.writing.unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.startWriting(&p); err != nil {
		return 0, err
	}
	st.placing = true
	n, err = st.place(partsOfOne(b), offset, &p)
	st.placing = false
	return n, err
}

// place is IOWrite for the owner of writing. mu is held, but not while it waits or during long copies.
//
// +checklocks:st.mu
func (st *Stream) place(b parts, offset int64, p *WaitMode) (n int, err error) {
	for b.left > 0 {
		ready := st.look(&b)
		if err := st.writable(); err != nil {
			return n, err
		}
		if ready == 0 {
			return n, errBuffer
		}
		if p.expired() {
			return n, os.ErrDeadlineExceeded
		}
		st.postMaps()
		if !st.m.MapsPending() {
			d, found, ok := st.m.NextWrite(ready, uint64(offset)+uint64(n), rs.MaxData, st.opts.Inline)
			if !found {
				return n, nil
			}
			if ok {
				st.postData(&d, verbs.WRRDMAWrite, &b)
				n += d.N
				continue
			}
		}
		if err := st.pause(&st.write.waiter, p); err != nil {
			return n, err
		}
	}
	return n, nil
}

// postMaps posts the IO maps that the peer does not know yet. mu is held.
//
// +checklocks:st.mu
func (st *Stream) postMaps() {
	for {
		m, ok := st.m.NextMap()
		if !ok {
			return
		}
		st.postMessage(&verbs.SendWR{
			WRID: wrData, Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: m.Payload[:], ImmData: m.Word,
			RemoteAddr: m.Remote.Addr, RKey: m.Remote.Key,
		})
	}
}

package endpoint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Second has the methods of the second process, which the first calls through duo.Process.Call.
type Second struct {
	end  *End
	asks *rdmacm.ID  // listens, between ListenIWARP and AcceptIWARP
	stop atomic.Bool // ends Serve
	file *os.File
	sum  hash.Hash
}

// Hello is the connection data of a process.
type Hello struct {
	QPs  []verbs.QPInfo
	Addr uint64 // of the region
	RKey uint32
}

// A Region is a range of the second process's memory and the seed of its pattern.
type Region struct {
	Off, Len int
	Seed     uint64
}

// None is for methods without arguments or results.
type None struct{}

// Open creates the End; it closes an older one.
func (s *Second) Open(o Options, reply *Hello) error {
	if s.end != nil {
		if err := s.end.Close(); err != nil {
			return err
		}
	}
	end, err := Open(o)
	if err != nil {
		return err
	}
	s.end = end
	infos, err := end.Infos()
	*reply = Hello{QPs: infos, Addr: end.MR.Addr(), RKey: end.MR.RKey()}
	return err
}

// Connect connects the QPs to those of the first process.
func (s *Second) Connect(remote []verbs.QPInfo, _ *None) error { return s.end.Connect(remote) }

// TCP serves duo.TCPConns and returns the address.
func (s *Second) TCP(ip netip.Addr, reply *netip.AddrPort) (err error) {
	*reply, err = duo.ServeTCP(ip)
	return err
}

// Fill writes the pattern of a region.
func (s *Second) Fill(r Region, _ *None) error {
	Fill(s.end.Buf[r.Off:][:r.Len], r.Seed)
	return nil
}

// Check compares a region with its pattern.
func (s *Second) Check(r Region, _ *None) error { return Check(s.end.Buf[r.Off:][:r.Len], r.Seed) }

// A Match is the expected content of a range of the second process's memory.
type Match struct {
	Off  int
	Want []byte
}

// Same checks a Match.
func (s *Second) Same(m Match, _ *None) error {
	got := s.end.Buf[m.Off:][:len(m.Want)]
	if i := differ(got, m.Want); i >= 0 {
		return fmt.Errorf("byte %d is 0x%02x, not 0x%02x", m.Off+i, got[i], m.Want[i])
	}
	return nil
}

// Word reads the eight bytes of an atomic's operand.
func (s *Second) Word(off int, v *uint64) error {
	*v = Word(s.end.Buf[off:])
	return nil
}

// SetWord writes the eight bytes of an atomic's operand.
func (s *Second) SetWord(a [2]uint64, _ *None) error {
	PutWord(s.end.Buf[a[0]:], a[1])
	return nil
}

// PostRecv posts a receive on the first QP.
func (s *Second) PostRecv(r Region, _ *None) error {
	return s.end.QPs[0].PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.end.MR.SGE(r.Off, r.Len)}})
}

// Received waits for one receive completion.
func (s *Second) Received(_ None, wc *verbs.WC) (err error) {
	*wc, err = s.end.WaitOne()
	return err
}

// The modes of Serve.
const (
	Sink = iota // repost the receive
	Pong        // also send the message back
	Spin        // expect no messages, only poll: for one-sided operations
)

// Serving configures Serve.
type Serving struct {
	Mode  int
	Bytes int // of a message
}

// Prepare posts as many receives as fit. The WRID of each is the QP's index.
func (s *Second) Prepare(a Serving, _ *None) error {
	s.stop.Store(false)
	if a.Mode == Spin {
		return nil
	}
	for i, qp := range s.end.QPs {
		wr := verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{s.end.MR.SGE(0, a.Bytes)}}
		for {
			err := qp.PostRecv(wr)
			if errors.Is(err, verbs.ENOMEM) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Serve serves until Stop. It consumes everything that has arrived by then, since the next Serve would take
// leftover completions for its own messages, and waits for the completions of its own sends.
func (s *Second) Serve(a Serving, _ *None) error {
	e := s.end
	sge := []verbs.SGE{e.MR.SGE(0, a.Bytes)}
	back := verbs.SendWR{WRID: sendWRID, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge}
	if a.Bytes <= inline {
		back.Flags |= verbs.SendInline
	}
	again := make([]verbs.RecvWR, len(e.wcs))
	for sending := 0; ; {
		stop := s.stop.Load() // before the last poll
		wcs, err := e.Poll()
		if err != nil {
			return err
		}
		if stop && len(wcs) == 0 && sending == 0 {
			return nil
		}
		for len(wcs) > 0 {
			id, n := wcs[0].WRID, run(wcs)
			wcs = wcs[n:]
			if id == sendWRID {
				sending -= n
				continue
			}
			for i := range again[:n] {
				again[i] = verbs.RecvWR{WRID: id, SGList: sge}
			}
			qp := e.QPs[id]
			if err := qp.PostRecv(again[:n]...); err != nil {
				return err
			}
			if a.Mode != Pong {
				continue
			}
			for range n {
				if err := qp.PostSend(back); err != nil {
					return err
				}
				sending++
			}
		}
	}
}

// run returns how many completions from the first on have the same WRID.
func run(wcs []verbs.WC) int {
	n := 1
	for n < len(wcs) && wcs[n].WRID == wcs[0].WRID {
		n++
	}
	return n
}

// sendWRID marks sends; the WRID of a receive is a QP's index.
const sendWRID = 1 << 32

// Stop ends Serve.
func (s *Second) Stop(None, *None) error {
	s.stop.Store(true)
	return nil
}

// RSS returns the resident memory of the process in bytes.
func (s *Second) RSS(_ None, bytes *uint64) (err error) {
	*bytes, err = RSS()
	return err
}

// OpenFile opens the file that Load reads.
func (s *Second) OpenFile(path string, size *int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.file, s.sum = f, sha256.New()
	*size = info.Size()
	return nil
}

// Load reads the next bytes of the file into a region, fewer only at the end of the file.
func (s *Second) Load(r Region, n *int) error {
	var err error
	*n, err = io.ReadFull(s.file, s.end.Buf[r.Off:][:r.Len])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	s.sum.Write(s.end.Buf[r.Off:][:*n])
	return err
}

// Sum returns the SHA-256 of the bytes that Load has read.
func (s *Second) Sum(_ None, sum *[]byte) error {
	*sum = s.sum.Sum(nil)
	return s.file.Close()
}

package link

import (
	"os"
	"sync"
	"sync/atomic"
)

// A Share is registered memory that lies in a file, which other processes of this host may be given to read: messages out of
// it can then go by reference.
type Share struct {
	ID   uint64   // never that of another
	File *os.File // its owner keeps it open until Close
	Size int64    // of the file, bytes
	Off  int64    // of the region in the file

	mu     sync.Mutex
	closed bool
	last   []func()
}

var lastShare atomic.Uint64

// NewShare makes a Share of a region that begins at off of a file of that size.
func NewShare(file *os.File, size, off int64) *Share {
	return &Share{ID: lastShare.Add(1), File: file, Size: size, Off: off}
}

// OnClose has f called by Close. It returns false if that has been called before.
func (s *Share) OnClose(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.last = append(s.last, f)
	return true
}

// Close says that the region is no more: what was sent by reference and not been read yet must not be read.
func (s *Share) Close() {
	s.mu.Lock()
	last := s.last
	s.closed, s.last = true, nil
	s.mu.Unlock()
	for _, f := range last {
		f()
	}
}

// Referrer is a Port through which packets can go without their payload, which their receiver reads where it lies.
type Referrer interface {
	Direct
	// Reads tells whether the process of QP qpn at the end of path can read a share. If it cannot, it may be able to soon.
	Reads(path *Path, qpn uint32, s *Share) bool
	// PlaceRef gives the place for the head bytes of a packet's headers, whose payload is n bytes from off on in a share that Reads was
	// true of. It is as with Place of a train otherwise.
	PlaceRef(path *Path, qpn uint32, head int, s *Share, off int64, n int) []byte
	// Revoke makes packets by reference that went along a path invalid unless their receiver has done with them: they are
	// lost, those of other QPs too. Their memory may be used for something else when it returns.
	Revoke(path *Path)
}

// MaxRef is the most payload that one packet carries by reference, and MinRef the least for which it is worth the trouble.
const (
	MaxRef = 256 << 10
	MinRef = 8 << 10
)

// An Epoch tells whether payload by reference is still what it was when its packet was sent.
type Epoch struct {
	now *atomic.Uint64
	was uint32
}

// NewEpoch is the epoch was of a word that changes.
func NewEpoch(now *atomic.Uint64, was uint32) Epoch { return Epoch{now, was} }

// fence orders loads before it with loads behind it, on processors that need that.
var fence atomic.Uint32

// Over tells whether the payload that has been read so far may have been something else.
func (e Epoch) Over() bool {
	if e.now == nil {
		return false
	}
	fence.Add(0)
	return uint32(e.now.Load()) != e.was
}

package link

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// A Share is registered memory that other processes of this host can read: messages from it can be sent by reference.
// They map the file that the memory is in. If it is in none, the share is plain: they read the memory of this process
// with system calls, as far as the kernel permits.
type Share struct {
	ID   uint64   // unique in this process; 0: the share is plain
	File *os.File // its owner keeps it open until Close
	Size int64    // of the file, bytes
	Off  int64    // of the region in the file

	readers atomic.Pointer[[]Reader]

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	last []ending
}

// A Reader is the way to a process that reads shares.
type Reader interface {
	// Ended reports that nothing is sent any more. Revoke invalidates the messages by reference that were not read yet.
	Ended() bool
	Revoke()
}

// An ending is what Close does for a reader.
type ending struct {
	reader Reader
	f      func()
}

var lastShare atomic.Uint64

// NewShare makes a Share of the region at offset off of a file of size bytes.
func NewShare(file *os.File, size, off int64) *Share {
	return &Share{ID: lastShare.Add(1), File: file, Size: size, Off: off}
}

// NewPlainShare makes a Share of memory that is in no file.
func NewPlainShare() *Share { return new(Share) }

// Plain reports whether the memory is in no file.
func (s *Share) Plain() bool { return s.ID == 0 }

// Whole reports whether a region of n bytes covers the whole file, except for the rest of its last page.
func (s *Share) Whole(n int) bool {
	return s.Off == 0 && s.Size-int64(n) < int64(os.Getpagesize())
}

// AddReader makes Close revoke the messages that r has not read yet. It returns false after Close.
func (s *Share) AddReader(r Reader) bool {
	if known := s.readers.Load(); known != nil && slices.Contains(*known, r) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	next := []Reader{r}
	if known := s.readers.Load(); known != nil {
		for _, k := range *known {
			if k != r && !revokeEnded(k) {
				next = append(next, k)
			}
		}
	}
	s.readers.Store(&next)
	return true
}

// OnClose registers f, for a reader, to be called by Close. It drops the functions of readers that have ended and
// revokes their messages instead. It returns false, and does nothing, after Close.
func (s *Share) OnClose(r Reader, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.last = slices.DeleteFunc(s.last, func(e ending) bool { return revokeEnded(e.reader) })
	s.last = append(s.last, ending{r, f})
	return true
}

// revokeEnded reports whether nothing is sent to r any more, and revokes the messages that it has not read then.
func revokeEnded(r Reader) bool {
	if !r.Ended() {
		return false
	}
	r.Revoke()
	return true
}

// Close ends the share: messages by reference that were not read yet must not be read.
func (s *Share) Close() {
	s.mu.Lock()
	last := s.last
	s.closed, s.last = true, nil
	readers := s.readers.Swap(nil)
	s.mu.Unlock()
	if readers != nil {
		for _, r := range *readers {
			r.Revoke()
		}
	}
	for _, e := range last {
		e.f()
	}
}

// MaxRef is the maximum payload of a packet by reference in bytes, and MinRef the length from which a reference is
// faster than a copy. From memory that is in no file it is faster from MinPlainRef on, because the receiver needs a
// system call.
const (
	MaxRef      = 256 << 10
	MinRef      = 8 << 10
	MinPlainRef = 16 << 10
)

// An Epoch detects whether payload by reference was invalidated since its packet was sent.
type Epoch struct {
	now *atomic.Uint64
	was uint32
}

// NewEpoch makes an Epoch that is over once now differs from was.
func NewEpoch(now *atomic.Uint64, was uint32) Epoch { return Epoch{now, was} }

// Set reports whether e is not the zero Epoch: the packet was sent by reference.
func (e Epoch) Set() bool { return e.now != nil }

// fence orders the loads before it before the loads after it, on processors that reorder loads.
var fence atomic.Uint32

// Over reports whether the payload read so far may be invalid.
func (e Epoch) Over() bool {
	if !e.Set() {
		return false
	}
	fence.Add(0)
	return uint32(e.now.Load()) != e.was
}

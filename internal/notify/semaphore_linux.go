package notify

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Semaphore is an eventfd of the program, made with EFD_SEMAPHORE, that counts the events of a queue: one unit for each
// event. A reader of the descriptor reads one unit and then pops one event; the queue calls Popped for that. The reader
// may be any thread, and its read may block. The zero value counts nothing. The descriptor remains the program's. A
// Semaphore belongs to the lock of its queue.
//
// Between the calls this holds: units in the descriptor + units that readers have read and not popped with = queued
// events + owed.
type Semaphore struct {
	on   bool
	fd   int
	owed int // units to take back that readers hold, or that come back with the next of them
}

// NewSemaphore counts in a descriptor from now on: EBADF if there is no such descriptor.
func NewSemaphore(fd int) (Semaphore, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return Semaphore{}, err
	}
	return Semaphore{on: true, fd: fd}, nil
}

// Add counts n events that were queued.
func (s *Semaphore) Add(n int) {
	if s.on && n > 0 {
		_, _ = unix.Write(s.fd, binary.NativeEndian.AppendUint64(nil, uint64(n)))
	}
}

// Remove takes the units of n events back that left the queue otherwise than by a reader. A unit that a reader has read
// already is taken back when the reader pops.
func (s *Semaphore) Remove(n int) {
	if s.on && n > 0 {
		s.owed += n
		s.settle()
	}
}

// Popped notes that a reader that had read a unit popped: an event, or none if the queue was empty because its event
// was removed in between.
func (s *Semaphore) Popped(event bool) {
	if !s.on || s.owed == 0 {
		return
	}
	if !event {
		s.owed--
	}
	s.settle()
}

// settle takes back what is owed, as far as it is in the descriptor. The descriptor may be a blocking one, and readers
// compete for its units, so that only a read that never waits will do. A kernel that has none for eventfds (before
// 5.8) leaves the surplus to readers, which find an empty queue once and read again.
func (s *Semaphore) settle() {
	var unit [8]byte
	for s.owed > 0 {
		switch _, err := unix.Preadv2(s.fd, [][]byte{unit[:]}, -1, unix.RWF_NOWAIT); err {
		case nil:
			s.owed--
		case unix.EINTR:
		default:
			return
		}
	}
}

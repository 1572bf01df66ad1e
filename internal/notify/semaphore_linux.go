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
// Between the calls: units in the descriptor + units that readers have read without a pop yet = queued events + owed.
type Semaphore struct {
	on   bool
	fd   int
	owed int // surplus units, which takeBack has not read yet
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

// Remove takes back the units of n events that were removed from the queue without a reader. A unit that a reader has
// read already is taken back when the reader pops.
func (s *Semaphore) Remove(n int) {
	if s.on && n > 0 {
		s.owed += n
		s.takeBack()
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
	s.takeBack()
}

// takeBack reads owed units, as far as they are in the descriptor. The descriptor may be a blocking one and readers
// compete for its units, so the read must not wait. Kernels before 5.8 have no such read for eventfds; then readers
// take the surplus units, find an empty queue, and read again.
func (s *Semaphore) takeBack() {
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

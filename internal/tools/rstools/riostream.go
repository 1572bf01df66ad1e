package rstools

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rsocket/socket"
	"github.com/verbena-rdma/verbena/verbs"
)

// ioStream is riostream: each side maps its buffer, which is also the source of its writes, at offset 0.
// The last byte of a transfer marks its completion.
type ioStream struct {
	stream
	mem    []byte
	marker uint8
}

func runIOStream(env *tool.Env, args []string) int {
	s := &ioStream{stream: stream{iomap: true}}
	if status, ok := s.parse(env, args); !ok {
		return status
	}
	if err := s.run(s.test); err != nil {
		return env.Failf("riostream: %v", err)
	}
	return 0
}

func (s *ioStream) test() (err error) {
	// New memory for each test: a WRITE of the previous test may still be in flight.
	if s.mem, err = verbs.AllocBuffer(s.size + 4); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, verbs.FreeBuffer(s.mem)) }()
	s.marker = 0
	buf := s.mem[:s.size]
	buf[s.size-1] = 0xff
	if _, err := s.rs.IOMap(buf, socket.ProtWrite, 0); err != nil {
		return fmt.Errorf("riomap: %w", err)
	}
	defer func() { err = errors.Join(err, s.rs.IOUnmap(buf)) }()
	if err := s.sync(); err != nil {
		return err
	}
	start := time.Now()
	for range s.iterations {
		first, second := s.await, s.burst
		if s.server != "" {
			first, second = s.burst, s.await
		}
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
	}
	s.show(time.Since(start))
	return nil
}

// burst makes the transfers of an iteration; the last one has the marker.
func (s *ioStream) burst() error {
	for range s.count - 1 {
		if err := s.write(); err != nil {
			return err
		}
	}
	s.mem[s.size-1] = s.marker
	s.marker++
	if s.verify {
		s.pattern.fill(s.mem[:s.size-1])
	}
	return s.write()
}

func (s *ioStream) write() error {
	for off := 0; off < s.size; {
		if err := s.e.wait(socket.PollOut); err != nil {
			return err
		}
		n, err := s.rs.IOWrite(s.mem[off:s.size], int64(off), s.flags)
		if err != nil && !again(err) {
			return fmt.Errorf("riowrite: %w", err)
		}
		off += n
	}
	return nil
}

// looks is the number of memory checks between two checks of the connection.
const looks = 64

// await waits for the marker.
func (s *ioStream) await() error {
	// The device writes to the memory concurrently, so the word with the marker is read atomically.
	at := s.size - 1
	word := (*uint32)(unsafe.Pointer(&s.mem[at&^3]))
	come := func() bool {
		v := atomic.LoadUint32(word)
		return (*[4]byte)(unsafe.Pointer(&v))[at&3] == s.marker
	}
	for i := 1; !come(); i++ {
		if i%looks == 0 {
			fds := []socket.PollFD{{Socket: s.rs}}
			_, err := socket.Poll(fds, 0)
			if ended := fds[0].Revents&(socket.PollErr|socket.PollHup) != 0; (err != nil || ended) && !come() {
				return errors.Join(errors.New("the connection has ended"), err)
			}
		}
		runtime.Gosched()
	}
	s.marker++
	if s.verify {
		return s.pattern.check(s.mem[:s.size-1])
	}
	return nil
}

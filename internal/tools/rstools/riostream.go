package rstools

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

// ioStream is riostream: each side maps its buffer, which is also what it sends, at offset 0. The last byte of a transfer tells that
// it has come.
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
	// Memory of its own for each test: a WRITE of the last one may still be on its way.
	if s.mem, err = verbs.AllocBuffer(s.size + 4); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, verbs.FreeBuffer(s.mem)) }()
	s.marker = 0
	buf := s.mem[:s.size]
	buf[s.size-1] = 0xff
	if _, err := s.rs.IOMap(buf, rsocket.ProtWrite, 0); err != nil {
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

// burst makes the transfers of an iteration, of which the last one has the marker.
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
		if err := s.e.wait(rsocket.PollOut); err != nil {
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

// looks is how often memory is looked at before the connection is.
const looks = 64

// await waits until the marker is there.
func (s *ioStream) await() error {
	// The device writes to memory behind Go's back: the word with the marker is read atomically.
	at := s.size - 1
	word := (*uint32)(unsafe.Pointer(&s.mem[at&^3]))
	come := func() bool {
		v := atomic.LoadUint32(word)
		return (*[4]byte)(unsafe.Pointer(&v))[at&3] == s.marker
	}
	for i := 1; !come(); i++ {
		if i%looks == 0 {
			fds := []rsocket.PollFD{{Socket: s.rs}}
			_, err := rsocket.Poll(fds, 0)
			if ended := fds[0].Revents&(rsocket.PollErr|rsocket.PollHup) != 0; (err != nil || ended) && !come() {
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

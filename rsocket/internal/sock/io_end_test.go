package sock

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/rs"
)

// withData returns a connected stream that has n bytes to read.
func withData(t *testing.T, n uint32) (st *Stream, free func()) {
	t.Helper()
	st, free = withCQ(t)
	st.established = true
	st.res.rbuf = make([]byte, 4096)
	for i := range st.res.rbuf {
		st.res.rbuf[i] = byte(i)
	}
	if n > 0 {
		ok(t, st.m.OnMessage(rs.Word(rs.OpData, n), n))
	}
	return st, free
}

// A look at more bytes than there are ends at the end of the stream, though it is to fill the buffer. The bytes stay.
func TestR_IO_07_PeekAtTheEndOfTheStream(t *testing.T) {
	for name, end := range map[string]func(st *Stream){
		"the peer sends no more": func(st *Stream) { ok(t, st.m.OnMessage(rs.Word(rs.OpCtrl, rs.CtrlShutdown), 0)) },
		"the connection is over": func(st *Stream) { st.m.Disconnect() },
		"failure":                func(st *Stream) { st.state, st.err = streamFailed, syscall.EPROTO },
	} {
		st, free := withData(t, 3)
		b := make([]byte, 10)
		n, err := st.Recv(b, Peek|WaitAll, WaitMode{Nonblock: true})
		if n != 3 || !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("%s, before: %d bytes, %v", name, n, err)
		}
		end(st)
		for range 2 {
			n, err := st.Recv(b, Peek|WaitAll, WaitMode{Nonblock: true})
			if n != 3 || !errors.Is(err, st.err) || b[2] != 2 {
				t.Errorf("%s: %d bytes %v, %v", name, n, b[:n], err)
			}
		}
		for _, want := range []int{3, 0} {
			if n, err := st.Recv(b, WaitAll, WaitMode{Nonblock: true}); n != want || !errors.Is(err, st.err) {
				t.Errorf("%s: %d bytes read, %v, want %d", name, n, err, want)
			}
		}
		free()
	}
}

package verbs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutDescriptors calls f while the process can open no file.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	r, w, err := os.Pipe() // the runtime opens the descriptors of its poller with the first one
	ok(t, err)
	ok(t, r.Close())
	ok(t, w.Close())
	var old unix.Rlimit
	ok(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	ok(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
	defer func() { ok(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	f()
}

// openFiles counts the descriptors of the process that lead to something whose name begins with prefix.
func openFiles(t *testing.T, prefix string) (n int) {
	t.Helper()
	for _, e := range must(os.ReadDir("/proc/self/fd"))(t) {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && len(name) >= len(prefix) &&
			name[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

// Without descriptors a buffer is memory in no file.
func TestBufferWithoutDescriptors(t *testing.T) {
	t.Setenv("VERBENA_SHM", "1")
	t.Setenv("VERBENA_SHM_DIRECT", "1")
	var buf []byte
	var err error
	withoutDescriptors(t, func() { buf, err = AllocBuffer(10) })
	ok(t, err)
	if file, _ := BufferFile(buf); file != nil || len(buf) != 10 {
		t.Errorf("%d bytes in %v", len(buf), file)
	}
	buf[9] = 1
	ok(t, FreeBuffer(buf))
}

// An allocation that fails keeps no file, whether the file cannot be so long or cannot be mapped.
func TestBufferWithoutMemory(t *testing.T) {
	t.Setenv("VERBENA_SHM", "1")
	t.Setenv("VERBENA_SHM_DIRECT", "1")
	before := openFiles(t, "/memfd:verbena-buffer")
	for _, long := range []int64{1 << 56, 1<<63 - 1} {
		n := int(long)
		if int64(n) != long {
			continue // an int has 32 bits here
		}
		_, err := AllocBuffer(n)
		refused(t, err, ENOMEM, "alloc_buffer")
	}
	if after := openFiles(t, "/memfd:verbena-buffer"); after != before {
		t.Errorf("%d files of buffers, before %d", after, before)
	}
}

// A queue of events without a descriptor gets one as soon as the process can have it.
func TestV_EV_04_NoDescriptor(t *testing.T) {
	vctx, drv := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	cq, cqDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	for name, fd := range map[string]func() (int, error){"comp_channel_fd": ch.FD, "async_fd": vctx.AsyncFD} {
		var n int
		var err error
		withoutDescriptors(t, func() { n, err = fd() })
		refused(t, err, unix.EMFILE, name)
		if n != -1 {
			t.Errorf("%s: descriptor %d", name, n)
		}
	}
	cqDrv.up.Completion()
	drv.up.PortEvent(EventPortErr, 1)
	if !readable(t, must(ch.FD())(t)) || !readable(t, must(vctx.AsyncFD())(t)) {
		t.Error("not readable with an event")
	}
	must(ch.TryGetEvent())(t)
	cq.AckEvents(1)
	ok(t, cq.Close())
	ok(t, ch.Close())
	if n, err := ch.FD(); n != -1 || err == nil {
		t.Errorf("descriptor %d, %v of a closed channel", n, err)
	}
	ok(t, vctx.Close())
}

// A context that could not be exported can be exported later, and closes in both states.
func TestExportWithoutDescriptors(t *testing.T) {
	for _, later := range []bool{false, true} {
		vctx, _ := openFake(t)
		pipes := openFiles(t, "pipe:")
		var fd int
		var err error
		withoutDescriptors(t, func() { fd, err = vctx.CmdFD() })
		refused(t, err, unix.EMFILE, "cmd_fd")
		if fd != -1 {
			t.Errorf("descriptor %d", fd)
		}
		if later {
			ok(t, must(ImportDevice(must(vctx.CmdFD())(t)))(t).Close())
		}
		ok(t, vctx.Close())
		if fd, err = vctx.CmdFD(); fd != -1 || err == nil {
			t.Errorf("descriptor %d, %v of a closed context", fd, err)
		}
		if n := openFiles(t, "pipe:"); n != pipes {
			t.Errorf("%d descriptors of pipes, before %d", n, pipes)
		}
	}
}

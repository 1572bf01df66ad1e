package rstools

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// hostile is a connection whose peer sends the bytes of the fuzzer and closes.
type hostile struct {
	net.Conn
	r io.Reader
}

func (h *hostile) Read(b []byte) (int, error)       { return h.r.Read(b) }
func (h *hostile) Write(b []byte) (int, error)      { return len(b), nil }
func (h *hostile) SetReadDeadline(time.Time) error  { return nil }
func (h *hostile) SetWriteDeadline(time.Time) error { return nil }

// FuzzCopyServer runs rcopy's server with a hostile client. The server returns, writes no file outside its folder, and
// prints no control characters.
func FuzzCopyServer(f *testing.F) {
	say := func(command byte, data uint32, body string) []byte {
		b := []byte{0, command, 0, 0}
		binary.NativeEndian.PutUint16(b[2:], uint16(copyHeader+len(body)))
		b = binary.NativeEndian.AppendUint32(b, data)
		return append(binary.NativeEndian.AppendUint64(b, 7), body...)
	}
	size := string(binary.NativeEndian.AppendUint64(nil, 5))
	for _, name := range []string{"x\x00", "../out/x\x00", "link/x\x00", "/etc/x\x00", "\x1b[2J\x00"} {
		f.Add(slices.Concat(say(copyOpen, 0o644, name), say(copyWrite, 0, size), []byte("hello"), say(copyClose, 0, "")))
	}
	top := f.TempDir()
	folder, out := filepath.Join(top, "in"), filepath.Join(top, "out")
	for _, d := range []string{folder, out} {
		if err := os.Mkdir(d, 0o700); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.Symlink(out, filepath.Join(folder, "link")); err != nil {
		f.Skip(err)
	}
	files := &copyFolder{}
	if err := files.open(folder); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var printed bytes.Buffer
		s := copyServer{
			env: &tool.Env{Stdout: &printed, Stderr: io.Discard}, c: bounded{&hostile{r: bytes.NewReader(b)}}, files: files,
		}
		_ = s.serve()
		if bytes.ContainsAny(printed.Bytes(), "\x1b\a\x00\x7f") {
			t.Errorf("it printed %q", printed.Bytes())
		}
		if list, err := os.ReadDir(out); err != nil || len(list) != 0 {
			t.Fatalf("it wrote %v outside, %v", list, err)
		}
	})
}

//go:build linux || darwin

package soft_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_MR_03_MappedFile: a region of a mapped file: the file has the bytes of a peer's WRITE, and a READ of a
// read-only mapping works.
func TestV_MR_03_MappedFile(t *testing.T) { // V-MR-05
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	name := filepath.Join(t.TempDir(), "memory")
	const size = 64 << 10
	must(t, os.WriteFile(name, make([]byte, size), 0o600))
	f := get(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer f.Close()
	shared := get(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	readOnly := get(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED))(t)
	mr := get(b.pd.RegMR(shared, allAccess))(t)
	ro := get(b.pd.RegMR(readOnly, verbs.AccessRemoteRead))(t)

	a.fill(9)
	must(t, qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, size)}, RemoteAddr: mr.Addr(),
		RKey: mr.RKey(),
	}, verbs.SendWR{
		Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(size, size)},
		RemoteAddr: ro.Addr(), RKey: ro.RKey(),
	}))
	a.good(2)
	if !bytes.Equal(a.buf[size:2*size], a.buf[:size]) || !bytes.Equal(get(os.ReadFile(name))(t), a.buf[:size]) {
		t.Error("wrong contents of the file or the READ")
	}
	must(t, mr.Close())
	must(t, ro.Close())
	must(t, unix.Munmap(shared)) // V-MR-20: an access would end the program from here on
	must(t, unix.Munmap(readOnly))
	must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 1)},
		RemoteAddr: mr.Addr(), RKey: mr.RKey()}))
	if wc := a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a WRITE after Close: %v", wc.Status)
	}
}

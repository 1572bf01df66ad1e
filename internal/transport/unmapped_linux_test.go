package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// halfMapped returns two pages of memory. The program has unmapped the second one.
func halfMapped(t *testing.T) (mem []byte, page int) {
	t.Helper()
	page = unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for i := range mem[:page] {
		mem[i] = byte(i)
	}
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return mem, page
}

// A request whose memory is unmapped fails, and names the first byte of the packet and its SGE. The packet that was
// begun has an invalid P_Key and no content, so that its receiver drops it.
func TestSendOfUnmappedMemory(t *testing.T) {
	csum := func(w *SendWQE) { w.Flags |= IPCsum }
	tso := func(w *SendWQE) { w.Inline, w.MSS = append(w.Inline, "HEAD"...), 100 }
	for _, c := range []struct {
		name   string
		typ    Type
		op     Op
		change func(w *SendWQE)
		cuts   []int // lengths of the SGEs of mapped memory; another one follows
		gone   int   // length of the SGE of unmapped memory
		good   int   // packets before the spoiled one
		head   int   // bytes of the program's header in each packet
		why    string
	}{
		{"one piece", RC, OpSend, nil, nil, 700, 0, 0, "from byte 0 on, SGE 0: "},
		{"one short piece", RC, OpWrite, nil, nil, 3, 0, 0, "from byte 0 on, SGE 0: "},
		{"the second piece", RC, OpSend, nil, []int{300, 5}, 100, 0, 0, "from byte 0 on, SGE 0: "},
		{"the third packet", RC, OpSend, nil, []int{300, 1748}, 1024, 2, 0, "from byte 2048 on, SGE 2: "},
		{"UC", UC, OpSend, nil, []int{1024}, 10, 1, 0, "from byte 1024 on, SGE 1: "},
		{"checksums", UD, OpSend, csum, []int{10}, 10, 0, 0, "from byte 0 on, SGE 0: "},
		{"segments", UD, OpTSO, tso, []int{150, 50}, 10, 2, 4, "from byte 200 on, SGE 2: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem, page := halfMapped(t)
			filled := 0
			s := newSender(t, c.typ, func(cfg *Config, _ *Attr) {
				cfg.IPOffload = &IPOffload{Fill: func([]byte) { filled++ }, Start: func([]byte) error { return nil },
					Segment: func([]byte, Segment) { filled++ }}
			})
			r := &mr.Region{PD: testPD, Base: 1 << 30, Buf: mem}
			if err := s.qp.Regions.Add(r); err != nil {
				t.Fatal(err)
			}
			var sges []SGE
			for _, n := range c.cuts {
				sges = append(sges, SGE{Addr: r.Base, Length: uint32(n), LKey: r.LKey})
			}
			sges = append(sges, SGE{Addr: r.Base + uint64(page), Length: uint32(c.gone), LKey: r.LKey})
			s.post(c.op, sges, c.change)
			s.send(1) // is flushed
			pkts := s.out()
			if len(pkts) != c.good+1 {
				t.Fatalf("%d packets, want %d", len(pkts), c.good+1)
			}
			for i, p := range pkts {
				spoiled := i == c.good
				empty := len(bytes.Trim(p.Payload()[c.head:], "\x00")) == 0
				if (p.BTH().PKey() == 0) != spoiled || empty != spoiled {
					t.Errorf("packet %d: P_Key %#x, payload %x", i, p.BTH().PKey(), p.Payload())
				}
			}
			if c.op != OpTSO && filled > 0 || c.op == OpTSO && filled != c.good {
				t.Errorf("the device has completed %d messages", filled)
			}
			if len(s.cqes) != 2 || s.cqes[0].Status != LocProtErr || s.cqes[1].Status != WRFlushErr {
				t.Fatalf("%+v", s.cqes)
			}
			if f := s.cqes[0].Cause; f == nil || f.Reason != c.why+mr.ErrUnmapped.Error() {
				t.Errorf("%+v, want %q", f, c.why)
			}
		})
	}
}

// A request of the peer for unmapped memory is refused, and the reason names the key and the range. The SENDs are of a
// receive with that memory.
func TestRequestsForUnmappedMemory(t *testing.T) {
	const denied, invalid = "the peer has no access to the memory", "the receive has an invalid SGE"
	for _, c := range []struct{ in, nak, why string }{
		{"FETCH_ADD psn=100 at=U+PAGE/8 add=1", "NAK remote access", denied + ": key KEY, address PAGE, 8 bytes: "},
		{"CMP_SWAP psn=100 at=U+PAGE/8 swap=1", "NAK remote access", denied + ": key KEY, address PAGE, 8 bytes: "},
		{"ATOMIC_WRITE psn=100 at=U+PAGE/8 data=a*8", "NAK remote access", denied + ": key KEY, address PAGE, 8 bytes: "},
		{"WRITE_ONLY psn=100 at=U+PAGE/5 data=a*5", "NAK remote access", denied + ": key KEY, address PAGE, 5 bytes: "},
		{"READ psn=100 at=U+PAGE/7", "NAK remote access", denied + ": key KEY, address PAGE, 7 bytes: "},
		{"SEND_ONLY psn=100 data=a*6", "NAK remote operational",
			invalid + ": key KEY, address PAGE, 6 bytes: "},
	} {
		t.Run(strings.Fields(c.in)[0], func(t *testing.T) {
			mem, page := halfMapped(t)
			s := play(t, "qp rc")
			u := &mr.Region{PD: stagePD, Base: 0, Buf: mem, Access: mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite |
				mr.RemoteAtomic}
			s.named["U"] = u
			if err := s.regions.Add(u); err != nil {
				t.Fatal(err)
			}
			at := SGE{Addr: uint64(page), Length: 100, LKey: u.LKey}
			if err := s.qp.RQ.Post(1, []SGE{at}); err != nil {
				t.Fatal(err)
			}
			number := fmt.Sprintf("%#x", page)
			if err := s.doLine("in+ " + strings.ReplaceAll(c.in, "PAGE", number)); err != nil {
				t.Fatal(err)
			}
			s.qp.Transmit(s.now, s.tx, 64)
			n := len(s.tx.Packets)
			last, err := wire.Parse(s.tx.Bytes(n - 1)[:wire.BTHLen+wire.AETHLen])
			if err != nil || last.BTH().PSN() != 100 || syndromeText(last.AETH()) != c.nak || s.qp.State() != Err {
				t.Errorf("%v, %v, want %s", last, err, c.nak)
			}
			for i := range n - 1 { // the READ response that was begun
				spoiled := s.tx.Bytes(i)
				data := spoiled[wire.BTHLen+wire.AETHLen : len(spoiled)-wire.ICRCLen]
				if wire.BTH(spoiled).PKey() != 0 || len(bytes.Trim(data, "\x00")) > 0 {
					t.Errorf("packet %x", spoiled)
				}
			}
			want := strings.NewReplacer("KEY", fmt.Sprintf("%#x", u.RKey), "PAGE", number).Replace(c.why)
			if f := s.qp.first; f == nil || f.Reason != want+mr.ErrUnmapped.Error() {
				t.Errorf("%+v, want %q", f, want)
			}
		})
	}
}

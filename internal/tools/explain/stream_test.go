package explain

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// session is both directions of a connection, as pieces in the order of a capture.
func session(size int) (pieces []part) {
	client := netip.MustParseAddrPort("192.0.2.1:40000")
	server := netip.MustParseAddrPort("192.0.2.2:7471")
	seq := map[netip.AddrPort]uint32{client: 0xFFFFFFF0, server: 5} // the client's wraps
	add := func(from, to netip.AddrPort, data []byte) {
		for ; len(data) > 0; data = data[min(size, len(data)):] {
			n := min(size, len(data))
			pieces = append(pieces, part{from: from, to: to, seq: seq[from], data: data[:n]})
			seq[from] += uint32(n)
		}
	}
	for _, d := range [][2]netip.AddrPort{{client, server}, {server, client}} {
		pieces = append(pieces, part{from: d[0], to: d[1], seq: seq[d[0]], syn: true})
		seq[d[0]]++
	}
	request := iwarp.Start{CRC: true, Rev: 2, Enhanced: true, IRD: 3, ORD: 4, Private: []byte("hello")}
	reply := request
	reply.Reply, reply.Private = true, nil
	add(client, server, request.Append(nil))
	add(server, client, reply.Append(nil))
	tagged := func(last bool, to uint64, n int) []byte {
		b := make([]byte, iwarp.TaggedLen+n)
		iwarp.PutTagged(b, iwarp.Write, last, 0x123, to)
		return iwarp.AppendFPDU(nil, b, true)
	}
	untagged := func(op iwarp.Opcode, msn uint32, data []byte) []byte {
		b := make([]byte, iwarp.UntaggedLen, 100)
		iwarp.PutUntagged(b, op, true, 0, msn, 0)
		return iwarp.AppendFPDU(nil, append(b, data...), true)
	}
	add(client, server, slices.Concat(tagged(false, 0x1000, 500), tagged(true, 0x1000+500, 20)))
	read := make([]byte, iwarp.ReadRequestLen)
	(&iwarp.Read{Size: 77, SrcSTag: 0xBAD, SrcTO: 0x2000}).Put(read)
	add(client, server, untagged(iwarp.ReadRequest, 1, read))
	bad := untagged(iwarp.Send, 1, []byte("text"))
	bad[len(bad)-1] ^= 1
	add(client, server, bad)
	seg := make([]byte, iwarp.UntaggedLen)
	iwarp.PutUntagged(seg, iwarp.ReadRequest, true, 0, 1, 0)
	add(server, client, untagged(iwarp.TerminateOp, 1, (&iwarp.Terminate{Code: iwarp.ReadSTag, SegLen: 46, DDP: seg,
		RDMAP: read}).Append(nil)))
	return append(pieces, part{from: server, to: client, seq: seq[server], fin: true},
		part{from: client, to: server, seq: seq[client], rst: true})
}

func ladderOf(pieces []part) string {
	l, out := newLadder(), &bytes.Buffer{}
	for i := range pieces {
		t := pieces[i]
		l.any(&packet{src: t.from.Addr(), dst: t.to.Addr(), tcp: &t, at: time.Unix(1, 0)})
	}
	l.emit(0, (&text{w: out}).print)
	l.summary(out, 0, "")
	return out.String()
}

// The messages of a stream are the same however TCP splits it, and if pieces come twice.
func TestStreams(t *testing.T) {
	whole := ladderOf(session(1 << 16))
	for _, want := range []string{
		"---> port 40000 > 7471  MPA request, revision 2, CRCs, IRD 3, ORD 4, 5 bytes of private data",
		"<--- port 7471 > 40000  MPA reply, revision 2, CRCs, IRD 3, ORD 4\n",
		"WRITE at 0x1000, STag 0x123, 520 bytes in 2 segments\n",
		"READ of 77 bytes at 0x2000, STag 0xbad, request 1\n",
		"SEND, message 1, 4 bytes\n                   ! wrong CRC: damaged\n",
		"TERMINATE: remote protection error: invalid STag, because of a Read Request, number 1\n",
		"<--- port 7471 > 40000  end of the stream\n", "---> port 40000 > 7471  the connection is cut\n",
		"5 FPDUs of iWARP, 8 messages and answers, 1 Terminates",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("no %q in\n%s", want, whole)
		}
	}
	for _, size := range []int{1, 3, 100} {
		pieces := session(size)
		if got := ladderOf(pieces); got != whole {
			t.Errorf("pieces of %d bytes:\n%s\nwhole:\n%s", size, got, whole)
		}
		if got := ladderOf(slices.Concat(pieces[:len(pieces)-2], pieces[2:])); got != whole { // the second time without SYN
			t.Errorf("pieces of %d bytes, twice:\n%s", size, got)
		}
	}
	pieces := session(100) // those of the client come in another order
	order := func(p part) bool { return p.from.Port() == 40000 && !p.syn && !p.rst }
	var at []int
	for i, p := range pieces {
		if order(p) {
			at = append(at, i)
		}
	}
	from := slices.Clone(pieces)
	for i, j := range rand.New(rand.NewPCG(1, 2)).Perm(len(at)) {
		pieces[at[i]] = from[at[j]]
	}
	sorted := func(s string) string {
		lines := strings.Split(s, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if got := ladderOf(pieces); sorted(got) != sorted(whole) {
		t.Errorf("pieces in another order:\n%s", got)
	}
}

// A capture that begins within a connection, or lacks a part of it, is explained as far as possible.
func TestStreamsWithGaps(t *testing.T) {
	pieces := session(1 << 16)
	if got := ladderOf(pieces[5:]); !strings.Contains(got, "0 messages") {
		t.Errorf("without the begin:\n%s", got)
	}
	if got := ladderOf(pieces[2:]); !strings.Contains(got, "WRITE") {
		t.Errorf("without SYN:\n%s", got)
	}
	big := slices.Clone(pieces[:4])
	late := pieces[5]
	for range mostLater + 1 {
		late.seq++
		big = append(big, late)
	}
	if got := ladderOf(big); !strings.Contains(got, "bytes of the stream are missing") {
		t.Errorf("with a gap:\n%s", got)
	}
	wrong := slices.Clone(pieces[:5])
	wrong[4].data = []byte{0, 3, 1, 2, 3, 4, 5, 6}
	if got := ladderOf(wrong); !strings.Contains(got, "malformed FPDU: its length is 3") {
		t.Errorf("malformed:\n%s", got)
	}
}

// The bytes of a stream that is not followed any more do not count as waiting.
func TestForgottenBytes(t *testing.T) {
	pieces := session(1 << 16)
	l := newLadder()
	feed := func(p part) { l.any(&packet{src: p.from.Addr(), dst: p.to.Addr(), tcp: &p, at: time.Unix(1, 0)}) }
	behind := pieces[4]
	behind.seq++
	feed(pieces[0])
	feed(behind)
	if want := len(behind.data); l.held != want {
		t.Fatalf("%d bytes wait behind a gap, want %d", l.held, want)
	}
	if feed(pieces[0]); l.held != 0 {
		t.Errorf("%d bytes wait after another SYN", l.held)
	}
	for range mostLater + 1 {
		feed(behind)
	}
	if l.held != 0 {
		t.Errorf("%d bytes wait in a stream that is not explained", l.held)
	}
}

// FuzzStreams feeds the ladder pieces of TCP streams in any order.
func FuzzStreams(f *testing.F) {
	for _, size := range []int{1 << 16, 50} {
		var script []byte
		for _, p := range session(size) {
			n := min(len(p.data), 255)
			flags := byte(0)
			if p.from.Port() != 40000 {
				flags = 1
			}
			for bit, on := range map[byte]bool{2: p.syn, 4: p.fin, 8: p.rst} {
				if on {
					flags |= bit
				}
			}
			script = append(append(script, flags, byte(p.seq), byte(n)), p.data[:n]...)
		}
		f.Add(script)
	}
	ends := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:40000"), netip.MustParseAddrPort("192.0.2.1:7471")}
	f.Fuzz(func(t *testing.T, script []byte) {
		l := newLadder()
		for len(script) > 3 {
			n := min(int(script[2]), len(script)-3)
			from := script[0] & 1
			p := part{from: ends[from], to: ends[1-from], syn: script[0]&2 != 0, fin: script[0]&4 != 0,
				rst: script[0]&8 != 0, seq: uint32(int8(script[1])), data: script[3 : 3+n]}
			if s := l.streams[direction{p.from, p.to}]; s != nil && script[0]&16 == 0 && !p.syn {
				p.seq = s.next // in order
			}
			script = script[3+n:]
			l.any(&packet{src: p.from.Addr(), dst: p.to.Addr(), tcp: &p})
			if l.held < 0 {
				t.Fatalf("%d bytes wait", l.held)
			}
		}
		printed(t, l, 0)
	})
}

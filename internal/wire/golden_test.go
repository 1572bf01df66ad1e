package wire_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/wiretest"
)

// eachCaptured calls check for every packet of every capture, in a subtest for each file.
func eachCaptured(t *testing.T, check func(t *testing.T, p *captures.Packet)) {
	for _, name := range captures.Names(t) {
		t.Run(name, func(t *testing.T) {
			for _, p := range captures.Read(t, name) {
				check(t, &p)
				if t.Failed() {
					t.Fatalf("in %s.pcap, packet %d: %v", name, p.N, wire.Packet(p.Body()))
				}
			}
		})
	}
}

// TestGoldenReencode decodes every packet of the Linux peers and builds the same bytes again.
func TestGoldenReencode(t *testing.T) {
	eachCaptured(t, func(t *testing.T, c *captures.Packet) {
		p, err := wire.Parse(c.Body())
		if err != nil {
			t.Error(err)
			return
		}
		if got := p.Fields().Build(); !bytes.Equal(got, p) {
			t.Errorf("built again as\n% x, captured is\n% x", []byte(got), []byte(p))
		}
	})
}

// TestGoldenICRC verifies every packet, with the known identification and without it.
func TestGoldenICRC(t *testing.T) {
	eachCaptured(t, func(t *testing.T, c *captures.Packet) {
		stored := le.Uint32(c.Data[len(c.Data)-wire.ICRCLen:])
		if got := wiretest.ICRC(c.IP, c.UDP, c.Body()); got != stored {
			t.Fatalf("by definition the ICRC is %#08x, captured is %#08x", got, stored)
		}
		if got := c.Flow().ICRC(c.Body(), c.ID); got != stored {
			t.Errorf("ICRC is %#08x, captured is %#08x", got, stored)
		}
		for _, guess := range []uint16{c.ID, 0, c.ID - 1} {
			want := c.ID
			if c.Src.Is6() {
				want = guess
			}
			if id, ok := c.Flow().Verify(c.Data, guess); !ok || id != want {
				t.Errorf("identification %#x, guess %#x: Verify gives %#x, %v", c.ID, guess, id, ok)
			}
		}
		sealed := bytes.Clone(c.Data)
		clear(sealed[len(c.Body()):])
		c.Flow().Seal(sealed, c.ID)
		if !bytes.Equal(sealed, c.Data) {
			t.Errorf("sealed with % x, captured is % x", sealed[len(c.Body()):], c.Data[len(c.Body()):])
		}
	})
}

// TestGoldenDamage flips a bit in every byte of every packet. The one masked byte does not matter. With the known
// identification every other flip is detected; without it, nearly every one.
func TestGoldenDamage(t *testing.T) {
	flips, deceived := 0, 0
	eachCaptured(t, func(t *testing.T, c *captures.Packet) {
		f := c.Flow()
		for i := range c.Data {
			bit := byte(1) << (i & 7)
			c.Data[i] ^= bit
			_, ok := f.Verify(c.Data, c.ID)
			exact := f.ICRC(c.Body(), c.ID) == le.Uint32(c.Data[len(c.Body()):])
			c.Data[i] ^= bit
			switch masked := i == 4; {
			case masked != exact:
				t.Errorf("flipping %#02x in byte %d: ICRC fits is %v, want %v", bit, i, exact, masked)
			case !masked:
				flips++
				if ok {
					deceived++
				}
			case !ok:
				t.Errorf("flipping %#02x in byte %d, which is masked: does not verify", bit, i)
			}
		}
	})
	if limit := flips >> 14; deceived > limit {
		t.Errorf("%d of %d damaged packets verify with an unknown identification, want at most %d", deceived, flips, limit)
	}
	t.Logf("%d flips, %d of them not noticed with an unknown identification", flips, deceived)
}

// TestGoldenHeaderDamage changes fields of the IP and UDP headers that the ICRC covers.
func TestGoldenHeaderDamage(t *testing.T) {
	eachCaptured(t, func(t *testing.T, c *captures.Packet) {
		other := func(a netip.Addr) netip.Addr {
			b := a.AsSlice()
			b[len(b)-1] ^= 0x10
			a, _ = netip.AddrFromSlice(b)
			return a
		}
		for name, f := range map[string]wire.Flow{
			"source address":      wire.NewFlow(other(c.Src), c.Dst, c.SrcPort, wire.Port),
			"destination address": wire.NewFlow(c.Src, other(c.Dst), c.SrcPort, wire.Port),
			"source port":         wire.NewFlow(c.Src, c.Dst, c.SrcPort^1, wire.Port),
			"destination port":    wire.NewFlow(c.Src, c.Dst, c.SrcPort, wire.Port^1),
		} {
			if f.ICRC(c.Body(), c.ID) == le.Uint32(c.Data[len(c.Body()):]) {
				t.Errorf("another %s does not change the ICRC", name)
			}
		}
		// The lengths in both headers are covered: a word less or more is another packet.
		sum := c.Data[len(c.Body()):]
		for name, b := range map[string][]byte{
			"without its last word": slices.Concat(c.Data[:len(c.Body())-4], sum),
			"with a word of zeros":  slices.Concat(c.Body(), make([]byte, 4), sum),
		} {
			if _, ok := c.Flow().Verify(b, c.ID); ok {
				t.Errorf("verifies %s", name)
			}
		}
		if c.Src.Is4() && c.Flow().ICRC(c.Body(), c.ID^1) == c.Flow().ICRC(c.Body(), c.ID) {
			t.Error("another identification does not change the ICRC")
		}
	})
}

// TestGoldenText compares packets as text with the output of an independent decoder for the same captures.
func TestGoldenText(t *testing.T) {
	for _, c := range []struct {
		capture string
		n       int // counted from 1
		want    string
	}{
		{"atomic_cas", 1, "RC COMPARE SWAP qp=000022 psn=317b0d ackreq va=564d9c45f000 rkey=19ce swapadd=0 compare=0"},
		{"atomic_cas", 2, "RC ATOMIC ACKNOWLEDGE qp=000023 psn=317b0d ack msn=1 orig=473b9296a02208dc"},
		{"imm", 1, "RC SEND ONLY WITH IMMEDIATE qp=00002b psn=002000 ackreq imm=44332211 data=100"},
		{"imm", 5, "RC SEND LAST WITH IMMEDIATE qp=00002b psn=002003 ackreq imm=88776655 data=452"},
		{"imm", 7,
			"RC RDMA WRITE ONLY WITH IMMEDIATE qp=00002b psn=002004 ackreq va=3a1ac000 rkey=22a6 len=100 imm=44332211 data=100"},
		{"inv", 3, "RC SEND ONLY WITH INVALIDATE qp=00002d psn=002001 ackreq inv=80001d1 data=64"},
		{"inv", 6, "RC ACKNOWLEDGE qp=00002e psn=002002 nak remote-access msn=2"},
		{"nak_len", 2, "RC ACKNOWLEDGE qp=000033 psn=002000 nak remote-operational msn=0"},
		{"nak_opcode", 2, "RC ACKNOWLEDGE qp=000032 psn=002000 nak invalid-request msn=0"},
		{"rnr_exceeded", 2, "RC ACKNOWLEDGE qp=000034 psn=002000 rnr-nak timer=12 msn=0"},
		{"read_bw", 1, "RC RDMA READ REQUEST qp=000025 psn=8ccf3f ackreq va=559a42684710 rkey=1c7b len=10000"},
		{"read_bw", 2, "RC RDMA READ RESPONSE FIRST qp=000026 psn=8ccf3f ack msn=1 data=1024"},
		{"read_bw", 3, "RC RDMA READ RESPONSE MIDDLE qp=000026 psn=8ccf40 data=1024"},
		{"ud_pingpong_ipv6", 1, "UD SEND ONLY qp=00001f psn=934b43 qkey=11111111 src=000020 data=509"},
		{"udaddy", 3, "UD SEND ONLY WITH IMMEDIATE qp=000016 psn=000000 qkey=01234567 src=000017 imm=00000017 data=100"},
	} {
		p := captures.Read(t, c.capture)[c.n-1]
		if got := wire.Packet(p.Body()).String(); got != c.want {
			t.Errorf("%s, packet %d:\ngot  %s\nwant %s", c.capture, c.n, got, c.want)
		}
	}
}

// TestGoldenMAD reads the header of a CM request and its rejection.
func TestGoldenMAD(t *testing.T) {
	all := captures.Read(t, "cm_reject")
	var tid [2]uint64
	for i, attr := range []uint16{0x10, 0x12} { // REQ, REJ
		p := wiretest.Expect(t, all[i].Body(), wiretest.DestQPN(wire.GSIQPN), wiretest.DETH(wire.GSIQKey, wire.GSIQPN))
		m, err := wire.ParseMAD(p.Payload())
		if err != nil {
			t.Fatal(err)
		}
		tid[i] = m.TID()
		want := wire.MADHeader{Class: wire.ClassCM, ClassVersion: 2, Method: wire.MethodSend, TID: tid[0], AttrID: attr}
		if got := m.Header(); got != want {
			t.Errorf("packet %d: header %+v, want %+v", i+1, got, want)
		}
		if m.IsResponse() || len(m.Data()) != 232 {
			t.Errorf("packet %d: IsResponse %v, %d data bytes", i+1, m.IsResponse(), len(m.Data()))
		}
		again := make(wire.MAD, wire.MADLen)
		copy(again.Data(), m.Data())
		again.Put(m.Header())
		if !bytes.Equal(again, m) {
			t.Errorf("packet %d: MAD built again differs", i+1)
		}
	}
	if tid[0] == 0 || tid[1] != tid[0] {
		t.Errorf("transaction IDs %#x and %#x, want equal ones", tid[0], tid[1])
	}
}

// goldenOpcodes are the opcodes in the captures, counted by an independent decoder. They prove that the tests over
// the captures are not empty.
const goldenOpcodes = `
00 RC SEND FIRST: 21
01 RC SEND MIDDLE: 117
02 RC SEND LAST: 27
03 RC SEND LAST WITH IMMEDIATE: 1
04 RC SEND ONLY: 190
05 RC SEND ONLY WITH IMMEDIATE: 1
06 RC RDMA WRITE FIRST: 15
07 RC RDMA WRITE MIDDLE: 29
08 RC RDMA WRITE LAST: 5
09 RC RDMA WRITE LAST WITH IMMEDIATE: 9
0a RC RDMA WRITE ONLY: 27
0b RC RDMA WRITE ONLY WITH IMMEDIATE: 35
0c RC RDMA READ REQUEST: 20
0d RC RDMA READ RESPONSE FIRST: 8
0e RC RDMA READ RESPONSE MIDDLE: 43
0f RC RDMA READ RESPONSE LAST: 8
10 RC RDMA READ RESPONSE ONLY: 11
11 RC ACKNOWLEDGE: 225
12 RC ATOMIC ACKNOWLEDGE: 10
13 RC COMPARE SWAP: 5
14 RC FETCH ADD: 5
17 RC SEND ONLY WITH INVALIDATE: 1
20 UC SEND FIRST: 6
21 UC SEND MIDDLE: 18
22 UC SEND LAST: 6
24 UC SEND ONLY: 10
26 UC RDMA WRITE FIRST: 5
27 UC RDMA WRITE MIDDLE: 5
28 UC RDMA WRITE LAST: 5
64 UD SEND ONLY: 62
65 UD SEND ONLY WITH IMMEDIATE: 9
`

func TestGoldenOpcodes(t *testing.T) {
	count := map[wire.Opcode]int{}
	for _, name := range captures.Names(t) {
		for _, p := range captures.Read(t, name) {
			count[wire.BTH(p.Data).Opcode()]++
		}
	}
	var got strings.Builder
	for _, op := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&got, "%02x %v: %d\n", uint8(op), op, count[op])
	}
	if want := strings.TrimLeft(goldenOpcodes, "\n"); got.String() != want {
		t.Errorf("opcodes in the captures:\n%swant:\n%s", got.String(), want)
	}
}

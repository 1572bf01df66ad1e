package explain

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// printed runs a ladder's outputs and checks that nothing in them commands a terminal or breaks the picture.
func printed(t *testing.T, l *ladder, others int) {
	var out bytes.Buffer
	printer := &text{w: &out, draws: true}
	l.emit(1, printer.print)
	l.emit(0, printer.print)
	l.summary(&out, others, "")
	for _, r := range out.String() {
		if !strconv.IsPrint(r) && r != '\n' {
			t.Fatalf("%q reaches the terminal: %q", r, out.String())
		}
	}
	if svg := string(picture(printer.drawn)); strings.ContainsAny(svg, "\x00\x1b\a") {
		t.Fatalf("control characters in the picture: %q", svg)
	}
}

// FuzzCapture reads any file as a capture.
func FuzzCapture(f *testing.F) {
	files, _ := filepath.Glob("../../../testdata/pcap/*.pcap*")
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			f.Add(b[:min(len(b), 2048)])
		}
	}
	f.Add(pcap.AppendInterface(pcap.AppendSection(nil), "vrb_a", "ibv_rc_pingpong (1)"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := open(bytes.NewReader(b[:min(len(b), 1<<16)]))
		if err != nil {
			return
		}
		l := newLadder()
		others, _ := each(s, fileSpan, l.any)
		printed(t, l, others)
	})
}

// FuzzLadder feeds the ladder packets in any order between two addresses. Each takes 10 bytes of the script: opcode,
// destination QP, PSN, flags, payload, comment, syndrome.
func FuzzLadder(f *testing.F) {
	f.Add([]byte{4, 5, 0, 1, 1, 0, 3, 0, 'a', ';', 17, 6, 0, 1, 0, 8, 0, 31, ';', ' '})
	f.Add([]byte{0, 5, 255, 255, 1, 0, 16, 0, 0, 0, 1, 5, 0, 0, 1, 0, 16, 0, 0, 0, 2, 5, 0, 1, 1, 0, 3, 0, ';', 27})
	ends := [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::2")}
	f.Fuzz(func(t *testing.T, script []byte) {
		l := newLadder()
		at := time.Unix(0, 0)
		for n := 0; len(script) >= 10 && n < 100; n++ {
			b := script[:10]
			script = script[10:]
			h := wire.Fields{
				Opcode: wire.Opcode(b[0]), PKey: 0xffff, DestQPN: uint32(b[1]),
				PSN: uint32(b[2])<<16 | uint32(b[3])<<8 | uint32(b[3]), AckReq: b[4]&1 != 0, SrcQPN: uint32(b[5]),
				DMALen: uint32(b[6]) << (b[5] % 32), RKey: uint32(b[7]), Syndrome: b[7], MSN: uint32(b[6]),
				Payload: make([]byte, int(b[6])*5),
			}
			if h.Opcode.Info().Len == 0 {
				continue
			}
			if h.DestQPN == wire.GSIQPN {
				h.Payload = make([]byte, 256)
			}
			copy(h.Payload, script)
			data, err := wire.Parse(h.Append(nil))
			if err != nil {
				continue
			}
			at = at.Add(time.Duration(b[6]) * time.Millisecond)
			from := int(b[4] >> 1 & 1)
			l.add(&packet{
				at: at, src: ends[from], dst: ends[1-from], data: data, comment: string(b[8:]),
				inbound: b[4]&4 != 0, outbound: b[4]&8 != 0, badICRC: b[4]&16 != 0, cut: b[4]&32 != 0,
			})
		}
		printed(t, l, 0)
	})
}

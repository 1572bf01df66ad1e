package iwarp_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// stream splits what one end of a capture sent into the start-up frame and the FPDUs.
func stream(t testing.TB, name string, reply bool, b []byte) (iwarp.Start, []iwarp.FPDU) {
	t.Helper()
	s, n, err := iwarp.ParseStart(b, reply)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if again := s.Append(nil); !bytes.Equal(again, b[:n]) {
		t.Errorf("%s: the start-up frame built again is\n%x, captured is\n%x", name, again, b[:n])
	}
	var all []iwarp.FPDU
	for b = b[n:]; len(b) > 0; {
		f, err := iwarp.ParseFPDU(b)
		if err != nil {
			t.Fatalf("%s: FPDU %d: %v", name, len(all), err)
		}
		all = append(all, f)
		b = b[len(f):]
	}
	return s, all
}

// eachStream calls check for each direction of each capture.
func eachStream(t testing.TB, check func(name string, s iwarp.Start, all []iwarp.FPDU)) {
	t.Helper()
	for _, name := range captures.IWARPNames() {
		client, server := captures.ReadIWARP(t, name)
		s, all := stream(t, name, false, client)
		check(name+" client", s, all)
		s, all = stream(t, name, true, server)
		check(name+" server", s, all)
	}
}

// rebuild decodes a segment and builds it again.
func rebuild(s iwarp.Segment) []byte {
	b := make([]byte, s.HeaderLen(), len(s))
	if s.Tagged() {
		iwarp.PutTagged(b, s.Opcode(), s.Last(), s.STag(), s.TO())
	} else {
		iwarp.PutUntagged(b, s.Opcode(), s.Last(), s.InvSTag(), s.MSN(), s.MO())
	}
	p := s.Payload()
	if n := s.Opcode().Info().Len; n != len(p) {
		return append(b, p...)
	}
	out := make([]byte, len(p))
	switch s.Opcode() {
	case iwarp.ReadRequest:
		r := iwarp.ParseRead(p)
		r.Put(out)
	case iwarp.AtomicRequest:
		a := iwarp.ParseAtomic(p)
		a.Put(out)
	case iwarp.AtomicResponse:
		id, was := iwarp.ParseAtomicResponse(p)
		iwarp.PutAtomicResponse(out, id, was)
	case iwarp.Immediate, iwarp.ImmediateSE:
		imm, n := iwarp.ParseImmediate(p)
		iwarp.PutImmediate(out, imm, n)
	default:
		copy(out, p)
	}
	return append(b, out...)
}

// TestGoldenReencode decodes every frame and segment that the kernels sent, and builds the same bytes again.
func TestGoldenReencode(t *testing.T) {
	count := map[iwarp.Opcode]int{}
	eachStream(t, func(name string, start iwarp.Start, all []iwarp.FPDU) {
		for i, f := range all {
			s := iwarp.Segment(f.ULPDU())
			if code, ok := iwarp.Check(s, len(s)); !ok {
				t.Fatalf("%s: FPDU %d: %v: %v", name, i, code, s)
			}
			count[s.Opcode()]++
			withCRC := strings.HasPrefix(name, "rping_crc")
			if again := iwarp.AppendFPDU(nil, rebuild(s), withCRC); !bytes.Equal(again, f) {
				t.Errorf("%s: FPDU %d: built again as\n% x, captured is\n% x", name, i, again, []byte(f))
			}
		}
	})
	var got []string
	for _, o := range slices.Sorted(maps.Keys(count)) {
		got = append(got, fmt.Sprintf("%v:%d", o, count[o]))
	}
	if s, want := strings.Join(got, " "), "Write:28 Read Request:11 Read Response:17 Send:55"; s != want {
		t.Errorf("the captures hold %s, want %s", s, want)
	}
}

// TestI_MPA_13_CRCOfTheKernel checks the CRC-32C that siw computed: it covers length, ULPDU and pad, and its least
// significant byte comes first. Without CRCs the field is there, and 0.
func TestI_MPA_13_CRCOfTheKernel(t *testing.T) {
	eachStream(t, func(name string, start iwarp.Start, all []iwarp.FPDU) {
		for i, f := range all {
			switch {
			case strings.HasPrefix(name, "rping_crc"):
				if !f.Intact() {
					t.Errorf("%s: FPDU %d: CRC %08x is wrong", name, i, f.CRC())
				}
				broken := bytes.Clone(f)
				broken[len(broken)/2] ^= 1
				if iwarp.FPDU(broken).Intact() {
					t.Errorf("%s: FPDU %d: a changed bit is not noticed", name, i)
				}
			case f.CRC() != 0:
				t.Errorf("%s: FPDU %d: CRC %08x although none was negotiated", name, i, f.CRC())
			}
		}
	})
}

// TestI_MPA_12_LengthAndPad checks lengths and pad against the kernel's, and for every remainder.
func TestI_MPA_12_LengthAndPad(t *testing.T) {
	eachStream(t, func(name string, start iwarp.Start, all []iwarp.FPDU) {
		for i, f := range all {
			n := len(f.ULPDU())
			pad := f[iwarp.LengthLen+n : len(f)-iwarp.CRCLen]
			if len(f)%4 != 0 || len(pad) != iwarp.Pad(n) || !bytes.Equal(pad, make([]byte, len(pad))) {
				t.Errorf("%s: FPDU %d: %d bytes, %d of pad, for a ULPDU of %d", name, i, len(f), len(pad), n)
			}
		}
	})
	for n, want := range map[int]int{14: 0, 15: 3, 16: 2, 17: 1, 18: 0, iwarp.MaxULPDU: 2} {
		if got := iwarp.Pad(n); got != want {
			t.Errorf("a ULPDU of %d bytes has %d bytes of pad, want %d", n, got, want)
		}
	}
	long := make([]byte, 2)
	for n, want := range map[int]error{iwarp.MaxULPDU: iwarp.ErrShort, iwarp.MaxULPDU + 1: iwarp.ErrLength,
		65535: iwarp.ErrLength, 13: iwarp.ErrLength, 0: iwarp.ErrLength, 14: iwarp.ErrShort} {
		long[0], long[1] = byte(n>>8), byte(n)
		if _, err := iwarp.ParseFPDU(long); !errors.Is(err, want) {
			t.Errorf("a length of %d gives %v, want %v", n, err, want)
		}
	}
}

// TestI_DDP_01_SequenceOfTheKernel checks MSN, MO and TO of every message of siw.
func TestI_DDP_01_SequenceOfTheKernel(t *testing.T) {
	eachStream(t, func(name string, start iwarp.Start, all []iwarp.FPDU) {
		var msn [iwarp.Queues]uint32
		var mo [iwarp.Queues]int
		for i, f := range all {
			s := iwarp.Segment(f.ULPDU())
			if s.Tagged() {
				continue
			}
			q := s.QN()
			if s.MSN() != msn[q]+1 || int(s.MO()) != mo[q] {
				t.Errorf("%s: FPDU %d: %v, want msn=%d mo=%d", name, i, s, msn[q]+1, mo[q])
			}
			mo[q] += len(s.Payload())
			if s.Last() {
				msn[q], mo[q] = msn[q]+1, 0
			}
		}
	})
}

// TestI_DDP_02_SegmentsOfOneMessage checks that only the last segment of a message has L, and that TO advances.
func TestI_DDP_02_SegmentsOfOneMessage(t *testing.T) {
	more := 0
	eachStream(t, func(name string, start iwarp.Start, all []iwarp.FPDU) {
		for i, f := range all {
			s := iwarp.Segment(f.ULPDU())
			if s.Last() {
				continue
			}
			more++
			next := iwarp.Segment(all[i+1].ULPDU())
			if next.Opcode() != s.Opcode() || next.STag() != s.STag() || next.TO() != s.TO()+uint64(len(s.Payload())) {
				t.Errorf("%s: FPDU %d: %v is followed by %v", name, i, s, next)
			}
		}
	})
	if more < 10 {
		t.Errorf("the captures hold %d segments that are not the last, want at least 10", more)
	}
}

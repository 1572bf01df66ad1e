package perftest

import (
	"encoding/binary"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// script is a channel whose peer sends what the fuzzer says, then ends.
type script struct {
	rest     []byte
	asBinary bool
}

func (s *script) recv(n int) ([]byte, error) {
	if n > len(s.rest) {
		return nil, io.ErrUnexpectedEOF
	}
	b := s.rest[:n:n]
	s.rest = s.rest[n:]
	return b, nil
}

func (s *script) send([]byte) error   { return nil }
func (s *script) binary() bool        { return s.asBinary }
func (s *script) peer() netip.Addr    { return netip.MustParseAddr("192.0.2.1") }
func (s *script) allow(time.Duration) {}
func (s *script) ended() bool         { return len(s.rest) == 0 }

// FuzzExchange is the whole exchange with a hostile peer: what it agrees to is within the bounds of the formats.
func FuzzExchange(f *testing.F) {
	d := dest{lid: 1, qpn: 0x11, psn: 0xabcdef, rkey: 0x1234, vaddr: 1 << 45}
	greeting := append([]byte(version), make([]byte, versionLen-len(version))...)
	greeting = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(greeting, 4096), 64)
	f.Add(append(append(greeting[:len(greeting):len(greeting)], d.text()...), "3\x00"...), false, true)
	f.Add(append(append(greeting[:len(greeting):len(greeting)], d.binary()...), "5\x00"...), true, false)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false, false)
	f.Fuzz(func(t *testing.T, b []byte, asBinary, client bool) {
		p := &peer{channel: &script{b, asBinary}, client: client}
		if _, err := p.greet(); err != nil {
			return
		}
		theirs, err := p.shake(&d)
		if err != nil {
			return
		}
		if theirs.qpn > 0xffffff || theirs.psn > 0xffffff {
			t.Fatalf("numbers of more than 24 bits: %+v", theirs)
		}
		if m, err := p.agreeMTU(verbs.MTU4096); err == nil && (m < verbs.MTU256 || m > verbs.MTU4096) {
			t.Fatalf("MTU %v", m)
		}
		_, _ = p.swapReports(&bwReport{})
	})
}

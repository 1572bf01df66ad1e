package transport

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// listener is a capture that notes the work request of each packet.
type listener struct{ told []string }

func (l *listener) From(uint32, int)                             {}
func (l *listener) Placed(*link.Path, []byte, bool)              {}
func (l *listener) Sent()                                        {}
func (l *listener) Received(*link.RxPacket, uint32, int, string) {}
func (l *listener) Request(wrid uint64, again uint32, why string) {
	l.told = append(l.told, fmt.Sprintf("wr %d, %d again: %s", wrid, again, why))
}

// A capture gets the work request of each packet, and how many of its PSNs are sent again for which reason.
func TestCaptureNamesTheWorkRequest(t *testing.T) {
	for _, typ := range []Type{RC, UC} {
		s := newSender(t, typ, nil)
		l := &listener{}
		s.tx.Tap = l
		s.send(2000)
		s.out()
		if typ == RC {
			s.post(OpRead, s.sges(0, 3000), nil)
			s.post(OpFetchAdd, s.sges(0, 8), nil)
			s.post(OpFlush, nil, flush(1))
			s.out()
		}
		want := []string{"wr 1, 0 again: ", "wr 1, 0 again: "}
		if typ == RC {
			want = append(want, "wr 2, 0 again: ", "wr 3, 0 again: ", "wr 4, 0 again: ")
		}
		same(t, "requests", l.told, want)
		if typ == UC {
			continue
		}
		l.told = nil
		s.nak(1001, wire.SynSeqErr)
		s.send(1)
		s.out()
		const why = "the peer keeps reporting a missing packet (NAK PSN sequence error)"
		same(t, "requests", l.told, []string{
			"wr 1, 6 again: " + why, "wr 2, 5 again: " + why, "wr 3, 2 again: " + why, "wr 4, 1 again: " + why,
			"wr 5, 0 again: " + why,
		})
	}
}

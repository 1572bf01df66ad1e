package cm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// TestStrayAnswersAreLimited: messages about connections and services that do not exist get 256 answers at once and
// then 1,000 per second; the others are counted.
func TestStrayAnswersAreLimited(t *testing.T) {
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, kind := range []cmmsg.Kind{cmmsg.KindREQ, cmmsg.KindREP, cmmsg.KindDREQ, cmmsg.KindSIDRREQ} {
		t.Run(kind.String(), func(t *testing.T) {
			m := New(Config{GUID: hereGUID, Seed: [32]byte{1}})
			var out Batch
			var mad [wire.MADLen]byte
			send := func(now int64) int {
				for i := range uint32(3000) {
					msg := cmmsg.Make(mad[:], kind, uint64(i))
					switch kind {
					case cmmsg.KindREQ:
						cmmsg.REQ(msg.Data()).Put(cmmsg.REQFields{LocalID: i + 1, ServiceID: simTCP, LocalQPN: 0x100,
							PKey: wire.DefaultPKey, MTU: 3, Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(src),
								RemoteGID: cmmsg.GID(dst)}})
					case cmmsg.KindREP:
						cmmsg.REP(msg.Data()).Put(cmmsg.REPFields{LocalID: i + 1, RemoteID: 0x777})
					case cmmsg.KindDREQ:
						cmmsg.DREQ(msg.Data()).Put(i+1, 0x777, 5)
					case cmmsg.KindSIDRREQ:
						cmmsg.SIDRREQ(msg.Data()).Put(i+1, wire.DefaultPKey, simUDP)
					}
					m.OnMAD(now, 0, src, dst, mad[:], &out)
				}
				n := len(out.Mail)
				out.Reset()
				return n
			}
			if n := send(0); n != 256 {
				t.Errorf("%d answers at once, want 256", n)
			}
			if n := send(int64(100 * time.Millisecond)); n != 100 {
				t.Errorf("%d answers 100 ms later, want 100", n)
			}
			if n := m.Counters.Unanswered; n != 6000-356 {
				t.Errorf("%d counted as unanswered, want %d", n, 6000-356)
			}
		})
	}
}

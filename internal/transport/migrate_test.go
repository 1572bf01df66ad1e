package transport

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// The states of path migration, step by step: requests of the program, received packets, observable results.
func TestV_AE_17_MigrationStates(t *testing.T) {
	altSrc, altDst, stranger := netip.MustParseAddr(
		"198.51.100.1",
	), netip.MustParseAddr(
		"198.51.100.2",
	), netip.MustParseAddr(
		"203.0.113.9",
	)
	for name, script := range map[string]string{
		"never armed":                   "M1 rx primary M0; rx primary M1; rx alt M1 stays MIGRATED M1",
		"armed by the peer":             "REARM M0 stays REARM; rx primary M1 stays REARM; rx primary M0 becomes ARMED M0",
		"follows when armed":            "REARM; rx primary M0; rx alt M1 becomes MIGRATED M1 moved",
		"follows in REARM":              "REARM; rx alt M1 becomes MIGRATED M1 moved",
		"old packets over the old path": "REARM; rx primary M0; MIGRATED moved; rx alt M0 taken stays MIGRATED",
		"by request":                    "REARM; rx primary M0; MIGRATED M1 moved",
		"a stranger asks": "REARM; rx primary M0; rx stranger M1 dropped error; rx stranger M1 dropped" +
			" quiet; rx primary M0 taken stays ARMED",
		"a stranger, armed anew": "REARM; rx primary M0; rx stranger M1 dropped error; REARM; rx stranger M1" +
			" dropped error",
		"a stranger with M 0":       "REARM; rx primary M0; rx stranger M0 dropped quiet",
		"a stranger when not armed": "rx stranger M1 dropped quiet",
		"REARM twice":               "REARM; rx primary M0; REARM stays REARM; rx primary M0 becomes ARMED",
		"MIGRATED when not armed":   "MIGRATED stays MIGRATED quiet; REARM; MIGRATED refused stays REARM",
		"there and back": "REARM; rx primary M0; MIGRATED moved; REARM; rx primary M0 becomes ARMED;" +
			" MIGRATED back",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, RC, func(_ *Config, a *Attr) { a.RQPSN = 0 })
			first := link.Path{Src: srcAddr, Dst: dstAddr}
			s.modify(RTS, Attr{Alt: link.Path{Src: altSrc, Dst: altDst}, AltPKey: 0xFFFF, AltTimeout: 10}, MaskAltPath)
			for step := range strings.SplitSeq(script, ";") {
				s.events = nil
				before := s.qp.Counters
				var err error
				words := strings.Fields(step)
				for i := 0; i < len(words); i++ {
					a := &s.qp.attr
					moved := a.Path != first
					wrong := false
					switch w := words[i]; w {
					case "REARM", "MIGRATED":
						err = s.qp.Modify(
							0,
							&Attr{State: RTS, Mig: map[string]MigState{"REARM": Rearm, "MIGRATED": Migrated}[w]},
							MaskMigState,
						)
						if refused := i+1 < len(words) && words[i+1] == "refused"; err != nil && !refused {
							t.Fatal(err)
						}
					case "refused":
						wrong = !errors.Is(err, ErrNotArmed)
					case "rx":
						from := map[string]link.Path{"primary": a.Path, "alt": a.Alt, "stranger": {Src: a.Path.Src,
							Dst: stranger}}[words[i+1]]
						f := wire.Fields{
							Opcode:  wire.RC | wire.Ack,
							PKey:    0xFFFF,
							DestQPN: s.qp.Num,
							MigReq:  words[i+2] == "M1",
						} // of nothing
						s.qp.OnPacket(0, &link.RxPacket{Data: f.Build(), Src: from.Dst, Dst: from.Src})
						i += 2
					case "M0", "M1": // of sent packets
						wrong = (s.qp.baseFlags != 0) != (w == "M1")
					case "stays", "becomes":
						i++
						wrong = a.Mig != map[string]MigState{"REARM": Rearm, "MIGRATED": Migrated, "ARMED": Armed}[words[i]]
					case "moved":
						wrong = !moved || a.Timeout != 10 || a.AltTimeout != 14 || a.Alt != first || s.qp.PeerAddr() != altDst ||
							fmt.Sprint(s.events) != "[event 6]"
					case "back":
						wrong = moved || a.Timeout != 14
					case "error":
						wrong = fmt.Sprint(s.events) != "[event 7]"
					case "quiet":
						wrong = len(s.events) != 0
					case "dropped":
						wrong = s.qp.Counters.BadSource != before.BadSource+1
					case "taken":
						wrong = s.qp.Counters.BadSource != before.BadSource
					default:
						t.Fatalf("the script says %q", w)
					}
					if wrong {
						t.Fatalf("%s: not %q: %+v, events %v", step, words[i], *a, s.events)
					}
				}
			}
		})
	}
}

// The alternate path gets the whole ACK timeout, also if early retransmits over the first path preceded it.
func TestMigrationStartsTheAckTimer(t *testing.T) {
	s := measured(t)
	s.modify(RTS, Attr{Alt: link.Path{Src: altAddr(0), Dst: altAddr(1)}, AltPKey: 0xFFFF, AltTimeout: 14}, MaskAltPath)
	s.qp.attr.Mig, s.qp.attr.RetryCnt = Armed, 0
	s.send(1)
	s.out()
	s.timeout()
	s.raises("event 6")
	s.sends("RC SEND ONLY 1010 A +1")
	s.after(int64(AckTimeout(14)) / 4)
	s.is(RTS)
}

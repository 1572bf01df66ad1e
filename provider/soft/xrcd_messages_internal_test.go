package soft

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// relayed returns a packet as a link delivers it.
func relayed(payload string, src, dst string) link.RxPacket {
	p := wire.Fields{Opcode: wire.XRC | wire.SendOnly, PKey: wire.DefaultPKey, DestQPN: 20, PSN: 7, SRQN: 5,
		Payload: []byte(payload)}
	return link.RxPacket{Data: p.Build(), Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), HopLimit: 9}
}

func TestPacketToAnotherProcess(t *testing.T) {
	v4, v6 := relayed("abcde", "192.0.2.1", "192.0.2.2"), relayed("", "2001:db8::1", "2001:db8::2")
	v6.Train = true
	for _, p := range []link.RxPacket{v4, v6} {
		p.TClass = wire.ECNMarked // the home answers the mark
		got, ok := parsePacket(putPacket(nil, &p))
		if p.TClass = 0; !ok || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v, %v; want %+v", got, ok, p)
		}
	}
	body := v4
	body.Data, body.Body = bytes.Clone(v4.Data[:len(v4.Data)-8]), []byte("abcde")
	wire.BTH(body.Data)[1] &^= 0x30 // pad count 0
	if got, ok := parsePacket(putPacket(nil, &body)); !ok || !bytes.Equal(got.Data, v4.Data) {
		t.Errorf("payload apart: % x, %v; want % x", got.Data, ok, v4.Data)
	}
}

// A payload that its sender takes back while it is copied does not reach memory.
func TestRevokedPacketToAnotherProcess(t *testing.T) {
	var now atomic.Uint64
	p := relayed("abcd", "192.0.2.1", "192.0.2.2")
	p.Epoch = link.NewEpoch(&now, 0)
	if got, ok := parsePacket(putPacket(nil, &p)); !ok || wire.BTH(got.Data).PKey() != wire.DefaultPKey {
		t.Errorf("a valid payload: %v", ok)
	}
	now.Store(1)
	if got, ok := parsePacket(putPacket(nil, &p)); !ok || wire.BTH(got.Data).PKey() != 0 {
		t.Errorf("a revoked payload: %v", ok)
	}
}

func TestGuestAttr(t *testing.T) {
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	good := transport.Attr{
		State: transport.RTS, Path: link.Path{Src: src, Dst: dst, TClass: 8, HopLimit: 3, FlowLabel: 77, Rate: 5},
		DestQPN: 17, MTU: 1024, PKeyIndex: 1, PKey: 0x8001, Access: 15, MaxDestRdAtom: 4, MinRNRTimer: 12, Port: 1,
	}
	var g guestAttr
	if err := json.Unmarshal(putJSON(nil, guestAttrOf(&good)), &g); err != nil || g != guestAttrOf(&good) {
		t.Fatalf("%+v, %v", g, err)
	}
	if got := g.attr(transport.RTS); !reflect.DeepEqual(got, good) {
		t.Errorf("%+v, want %+v", got, good)
	}
	own := func(a netip.Addr) bool { return a == src }
	if !g.valid(1, own) {
		t.Error("refused")
	}
	if g.AltSrc, g.AltDst = src, dst; !g.valid(1, own) {
		t.Error("an alternate path: refused")
	}
	g.AltSrc, g.AltDst = netip.Addr{}, netip.Addr{}
	for name, spoil := range map[string]func(g *guestAttr){
		"another's address":    func(g *guestAttr) { g.Src = dst },
		"no peer":              func(g *guestAttr) { g.Dst = netip.Addr{} },
		"IPv6 peer":            func(g *guestAttr) { g.Dst = netip.MustParseAddr("2001:db8::1") },
		"QPN":                  func(g *guestAttr) { g.DestQPN = 1 << 24 },
		"MTU 128":              func(g *guestAttr) { g.MTU = 128 },
		"MTU 1000":             func(g *guestAttr) { g.MTU = 1000 },
		"MTU 8192":             func(g *guestAttr) { g.MTU = 8192 },
		"no MTU":               func(g *guestAttr) { g.MTU = 0 },
		"resources":            func(g *guestAttr) { g.MaxDestRdAtom = maxRdAtom + 1 },
		"no resources":         func(g *guestAttr) { g.MaxDestRdAtom = -1 },
		"timer":                func(g *guestAttr) { g.MinRNRTimer = 32 },
		"port 0":               func(g *guestAttr) { g.Port = 0 },
		"port 2":               func(g *guestAttr) { g.Port = 2 },
		"migration state":      func(g *guestAttr) { g.Mig = 3 },
		"alternate address":    func(g *guestAttr) { g.AltSrc, g.AltDst = dst, src },
		"no alternate peer":    func(g *guestAttr) { g.AltSrc = src },
		"no alternate address": func(g *guestAttr) { g.AltDst = dst },
		"IPv6 peer by another path": func(g *guestAttr) {
			g.AltSrc, g.AltDst = src, netip.MustParseAddr("2001:db8::1")
		},
	} {
		bad := g
		if spoil(&bad); bad.valid(1, own) {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzXRCDMessage: no message of another process makes the decoders fail, and what they accept is a packet.
func FuzzXRCDMessage(f *testing.F) {
	p := relayed("abcd", "192.0.2.1", "192.0.2.2")
	f.Add(putPacket(nil, &p))
	f.Add(putTurn(putHead(nil, msgTurn, 20, 3), new(transport.Turn), &p))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if kind, _, _, body, ok := parseHead(b); ok && kind == msgTurn {
			if turn, p, ok := parseTurn(body); ok {
				if _, again := transport.ParseTurn(turn.Append(nil)); !again {
					t.Errorf("%+v was accepted once only", turn)
				}
				checkPacket(t, &p)
			}
		}
		if p, ok := parsePacket(b); ok {
			checkPacket(t, &p)
		}
	})
}

func checkPacket(t *testing.T, p *link.RxPacket) {
	if _, err := wire.Parse(p.Data); err != nil || !p.Src.IsValid() || p.Src.Is4() != p.Dst.Is4() {
		t.Errorf("%+v: %v", p, err)
	}
}

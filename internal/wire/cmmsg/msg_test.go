package cmmsg_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// unhex decodes hexadecimal bytes with any white space and pads them to a datagram.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return append(b, make([]byte, wire.MADLen-len(b))...)
}

var (
	client = netip.MustParseAddr("192.168.1.10")
	server = netip.MustParseAddr("192.168.1.20")
)

// vectors are the messages of one imagined connection and look-up, derived by hand from the tables of the
// specification.
var vectors = []struct {
	name string
	hex  string
	make func(b []byte) cmmsg.Msg
	text string
}{
	{"W_CM_REQ", `
010702030000000000000001000000010010000000000000a1b2c3d400000000
0000000001061d2f0200c0fffe00000100000000000000000000110000000000
000000a1123456a7ffff37f0ffffffff00000000000000000000ffffc0a8010a
00000000000000000000ffffc0a80114308ef000004000880000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000409c40000000000000000000000000c0a8010a0000000000000000
00000000c0a80114010201800000000000007f11223300000000123400000002
00007f1144550000000056780001`, func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindREQ, 1<<32|1)
		cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
			LocalID: 0xA1B2C3D4, ServiceID: cmmsg.PSTCP.Service(7471), LocalGUID: 0x0200C0FFFE000001, LocalQPN: 0x11,
			RemoteTimeout: 20, LocalTimeout: 20, FlowControl: true, StartPSN: 0x123456, RetryCount: 7, RNRRetry: 7,
			PKey: 0xFFFF, MTU: 3, MaxRetries: 15,
			Primary: cmmsg.PathFields{
				LocalLID: cmmsg.LIDPermissive, RemoteLID: cmmsg.LIDPermissive, LocalGID: cmmsg.GID(client),
				RemoteGID: cmmsg.GID(server),
				FlowLabel: 0x308EF, HopLimit: 64, AckTimeout: 17,
			},
		})
		p := cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(client, 40000), server)
		p = append(p, 1, 2, 1, 0x80, 0, 0, 0, 0, 0, 0, 0x7F, 0x11, 0x22, 0x33, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 2)
		m.SetPrivate(append(p, 0, 0, 0x7F, 0x11, 0x44, 0x55, 0, 0, 0, 0, 0x56, 0x78, 0, 1))
		return m
	},
		"REQ id=a1b2c3d4 service=TCP:7471 guid=0200c0fffe000001 RC qp=000011 psn=123456 resources=0 depth=0 retry=7" +
			" rnr=7 mtu=3 timeouts=20/20" +
			" retries=15 flow 192.168.1.10>192.168.1.20 label=308ef hops=64 ack=17 from=192.168.1.10:40000 at=192.168.1.20" +
			" private=010201800000000000007f1122330000000012340000000200007f1144550000000056780001"},
	{"W_CM_REP", `
0107020300000000000000010000000100130000000000000badf00da1b2c3d4
00000000000022000000000065432100000079e00200c0fffe00000201020180
0000000000007f2211110000000022220000000200007f223333000000004444
0001000000000000`, func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindREP, 1<<32|1)
		cmmsg.REP(m.Data()).Put(cmmsg.REPFields{
			LocalID: 0x0BADF00D, RemoteID: 0xA1B2C3D4, LocalQPN: 0x22, StartPSN: 0x654321, TargetAckDelay: 15,
			FlowControl: true, RNRRetry: 7,
			LocalGUID: 0x0200C0FFFE000002,
		})
		m.SetPrivate([]byte{
			1, 2, 1, 0x80, 0, 0, 0, 0, 0, 0, 0x7F, 0x22, 0x11, 0x11, 0, 0, 0, 0, 0x22, 0x22, 0, 0, 0, 2,
			0, 0, 0x7F, 0x22, 0x33, 0x33, 0, 0, 0, 0, 0x44, 0x44, 0, 1,
		})
		return m
	}, "REP id=0badf00d to=a1b2c3d4 guid=0200c0fffe000002 qp=000022 psn=654321 resources=0 depth=0 rnr=7 delay=15 flow" +
		" private=010201800000000000007f2211110000000022220000000200007f2233330000000044440001"},
	{"W_CM_RTU", "010702030000000000000001000000010014000000000000a1b2c3d40badf00d", func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindRTU, 1<<32|1)
		cmmsg.RTU(m.Data()).Put(0xA1B2C3D4, 0x0BADF00D)
		return m
	}, "RTU id=a1b2c3d4 to=0badf00d"},
	{"W_CM_DREQ", "010702030000000000000001000000020015000000000000a1b2c3d40badf00d00002200", func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindDREQ, 1<<32|2)
		cmmsg.DREQ(m.Data()).Put(0xA1B2C3D4, 0x0BADF00D, 0x22)
		return m
	}, "DREQ id=a1b2c3d4 to=0badf00d qp=000022"},
	{"W_CM_DREP", "010702030000000000000001000000020016000000000000a1b2c3d40badf00d", func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindDREP, 1<<32|2)
		cmmsg.DREP(m.Data()).Put(0xA1B2C3D4, 0x0BADF00D)
		return m
	}, "DREP id=a1b2c3d4 to=0badf00d"},
	{"W_CM_REJ", "01070203000000000000000100000001001200000000000000000000a1b2c3d400000008", func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindREJ, 1<<32|1)
		cmmsg.REJ(m.Data()).Put(0, 0xA1B2C3D4, cmmsg.AboutREQ, cmmsg.RejInvalidServiceID, nil)
		return m
	}, "REJ id=00000000 to=a1b2c3d4 about=REQ reason=8 (invalid service ID)"},
	{
		"W_CM_25_REJ_Timeout",
		"010702030000000000000001000000010012000000000000a1b2c3d40badf00d801000040200c0fffe000001",
		func(b []byte) cmmsg.Msg {
			m := cmmsg.Make(b, cmmsg.KindREJ, 1<<32|1)
			cmmsg.REJ(m.Data()).
				Put(0xA1B2C3D4, 0x0BADF00D, cmmsg.AboutOther, cmmsg.RejTimeout, []byte{2, 0, 0xC0, 0xFF, 0xFE, 0, 0, 1})
			return m
		},
		"REJ id=a1b2c3d4 to=0badf00d about=other reason=4 (timeout) ari=0200c0fffe000001",
	},
	{"W_CM_MRA", "0107020300000000000000010000000100110000000000000badf00da1b2c3d440c0", func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindMRA, 1<<32|1)
		cmmsg.MRA(m.Data()).Put(0x0BADF00D, 0xA1B2C3D4, cmmsg.AboutREP, 24)
		return m
	}, "MRA id=0badf00d to=a1b2c3d4 about=REP timeout=24"},
	{"W_CM_SIDR_REQ", `010702030000000000000001000000030017000000000000a1b2c3d5ffff00000000000001111d2f00409c40
000000000000000000000000c0a8010a000000000000000000000000c0a80114`, func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindSIDRREQ, 1<<32|3)
		cmmsg.SIDRREQ(m.Data()).Put(0xA1B2C3D5, 0xFFFF, cmmsg.PSUDP.Service(7471))
		m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(client, 40000), server))
		return m
	}, "SIDR_REQ id=a1b2c3d5 service=UDP:7471 pkey=ffff from=192.168.1.10:40000 at=192.168.1.20"},
	{
		"W_CM_SIDR_REP",
		"010702030000000000000001000000030018000000000000a1b2c3d500000000000033000000000001111d2f01234567",
		func(b []byte) cmmsg.Msg {
			m := cmmsg.Make(b, cmmsg.KindSIDRREP, 1<<32|3)
			cmmsg.SIDRREP(m.Data()).
				Put(cmmsg.SIDRREPFields{RequestID: 0xA1B2C3D5, QPN: 0x33, ServiceID: cmmsg.PSUDP.Service(7471), QKey: 0x01234567})
			return m
		},
		"SIDR_REP id=a1b2c3d5 status=0 (success) service=UDP:7471 qp=000033 qkey=01234567",
	},
	{"W_CM_LAP", `010702030000000000000001000000040019000000000000a1b2c3d40badf00d 00000000 000022a0 00000000 ffff ffff
00000000000000000000ffffc0a8010a 00000000000000000000ffffc0a80114 12345 0 20 3f 05 38 88 61`, func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindLAP, 1<<32|4)
		cmmsg.LAP(m.Data()).Put(0xA1B2C3D4, 0x0BADF00D, 0x22, 20, cmmsg.PathFields{
			LocalLID: 0xFFFF, RemoteLID: 0xFFFF, LocalGID: cmmsg.GID(client), RemoteGID: cmmsg.GID(server),
			FlowLabel: 0x12345, TClass: 0x20, HopLimit: 63, Rate: 5, SL: 3, SubnetLocal: true, AckTimeout: 17,
		})
		m.SetPrivate([]byte{0x61})
		return m
	},
		"LAP id=a1b2c3d4 to=0badf00d qp=000022 timeout=20 192.168.1.10>192.168.1.20 label=12345 hops=63 ack=17" +
			" tclass=20 sl=3 private=61"},
	{
		"W_CM_APR",
		"01070203000000000000000100000004001a0000000000000badf00da1b2c3d4 02 03 0000 4142",
		func(b []byte) cmmsg.Msg {
			m := cmmsg.Make(b, cmmsg.KindAPR, 1<<32|4)
			cmmsg.APR(m.Data()).Put(0x0BADF00D, 0xA1B2C3D4, cmmsg.APRReject, []byte("AB"))
			return m
		},
		"APR id=0badf00d to=a1b2c3d4 status=3 (rejected) info=4142",
	},
	{"ECE_REQ", "010702030000000000000001000000010010000001020304a1b2c3d400abcdef", func(b []byte) cmmsg.Msg {
		m := cmmsg.Make(b, cmmsg.KindREQ, 1<<32|1)
		cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{LocalID: 0xA1B2C3D4})
		m.SetECE(cmmsg.ECE{Vendor: 0xABCDEF, Options: 0x01020304})
		return m
	},
		"REQ id=a1b2c3d4 service=0x0000000000000000 guid=0000000000000000 RC qp=000000 psn=000000 resources=0 depth=0" +
			" retry=0 rnr=0 mtu=0 timeouts=0/0" +
			" retries=0 pkey=0000 ::>:: label=00000 hops=0 ack=0 ece=abcdef/01020304"},
	{
		"ECE_REP",
		"0107020300000000000000010000000100130000010203040badf00da1b2c3d4 00000000 000022ab 000000cd 654321ef 0000" +
			" 78f0 0200c0fffe000002",
		func(b []byte) cmmsg.Msg {
			m := cmmsg.Make(b, cmmsg.KindREP, 1<<32|1)
			m.SetECE(cmmsg.ECE{Vendor: 0xABCDEF, Options: 0x01020304})
			cmmsg.REP(m.Data()).Put(cmmsg.REPFields{
				LocalID: 0x0BADF00D, RemoteID: 0xA1B2C3D4, LocalQPN: 0x22, StartPSN: 0x654321, TargetAckDelay: 15, RNRRetry: 7,
				SRQ:       true,
				LocalGUID: 0x0200C0FFFE000002,
			})
			return m
		},
		"REP id=0badf00d to=a1b2c3d4 guid=0200c0fffe000002 qp=000022 psn=654321 resources=0 depth=0 rnr=7 delay=15 srq" +
			" ece=abcdef/01020304",
	},
	{
		"ECE_SIDR_REP",
		"010702030000000000000001000000030018000001020304a1b2c3d5 01 00 abcd 000033ef 0000000001111d2f 00000000",
		func(b []byte) cmmsg.Msg {
			m := cmmsg.Make(b, cmmsg.KindSIDRREP, 1<<32|3)
			m.SetECE(cmmsg.ECE{Vendor: 0xABCDEF, Options: 0x01020304})
			cmmsg.SIDRREP(m.Data()).
				Put(cmmsg.SIDRREPFields{RequestID: 0xA1B2C3D5, Status: cmmsg.SIDRUnsupported, QPN: 0x33,
					ServiceID: cmmsg.PSUDP.Service(7471)})
			return m
		},
		"SIDR_REP id=a1b2c3d5 status=1 (service ID not supported) service=UDP:7471 qp=000033 qkey=00000000" +
			" ece=abcdef/01020304",
	},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			got := v.make(bytes.Repeat([]byte{0xEE}, wire.MADLen))
			if !bytes.Equal(got, want) {
				t.Errorf("built\n%x, want\n%x", []byte(got), want)
			}
			m, err := cmmsg.Parse(want)
			if err != nil {
				t.Fatal(err)
			}
			if m.String() != v.text {
				t.Errorf("reads\n%s, want\n%s", m, v.text)
			}
			if again := rebuild(m); !bytes.Equal(again, want) {
				t.Errorf("built again\n%x, want\n%x", []byte(again), want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	good := vectors[0].make(make([]byte, wire.MADLen))
	for _, c := range []struct {
		name string
		at   int
		to   byte
		want error
	}{
		{"base version", 0, 2, wire.ErrMADVersion},
		{"class", 1, wire.ClassSubnAdm, cmmsg.ErrClass},
		{"class version", 2, 1, cmmsg.ErrVersion},
		{"method Get", 3, wire.MethodGet, cmmsg.ErrMethod},
		{"method with response bit", 3, 0x83, cmmsg.ErrMethod},
		{"attribute 0x0f", 17, 0x0F, cmmsg.ErrKind},
		{"attribute 0x1b", 17, 0x1B, cmmsg.ErrKind},
		{"attribute 0x110", 16, 1, cmmsg.ErrKind},
		{"nothing", 8, 9, nil},
	} {
		b := bytes.Clone(good)
		b[c.at] = c.to
		if _, err := cmmsg.Parse(b); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	for _, n := range []int{0, 24, 255} {
		if _, err := cmmsg.Parse(good[:n]); !errors.Is(err, wire.ErrMADLen) {
			t.Errorf("%d bytes: error %v", n, err)
		}
	}
}

// TestC_PARM_04_PrivateLen compares the room for private data of each message with the specification's.
func TestC_PARM_04_PrivateLen(t *testing.T) {
	want := map[cmmsg.Kind]int{
		cmmsg.KindREQ: 92, cmmsg.KindMRA: 222, cmmsg.KindREJ: 148, cmmsg.KindREP: 196, cmmsg.KindRTU: 224,
		cmmsg.KindDREQ: 220,
		cmmsg.KindDREP: 224, cmmsg.KindSIDRREQ: 216, cmmsg.KindSIDRREP: 136, cmmsg.KindLAP: 168, cmmsg.KindAPR: 148,
		0x0F: 0, 0x1B: 0,
	}
	for k, n := range want {
		if k.PrivateLen() != n {
			t.Errorf("%v has room for %d bytes, want %d", k, k.PrivateLen(), n)
		}
		if !k.Valid() {
			continue
		}
		m := cmmsg.Make(make([]byte, wire.MADLen), k, 0)
		m.SetPrivate(bytes.Repeat([]byte{0xEE}, 300))
		if got := bytes.Count(m, []byte{0xEE}); got != n {
			t.Errorf("%v took %d bytes, want %d", k, got, n)
		}
		m.SetPrivate([]byte{1})
		if len(m.Private()) != n || !bytes.Equal(m.Private(), append([]byte{1}, make([]byte, n-1)...)) {
			t.Errorf("%v keeps private data of before: %x", k, m.Private())
		}
	}
}

// TestW_CMA_01_ServiceIDs checks that service IDs consist of port spaces and ports.
func TestW_CMA_01_ServiceIDs(t *testing.T) {
	for _, c := range []struct {
		ps   cmmsg.PortSpace
		id   cmmsg.ServiceID
		text string
	}{
		{cmmsg.PSTCP, 0x0000000001061234, "TCP:4660"}, {cmmsg.PSUDP, 0x0000000001111234, "UDP:4660"},
		{cmmsg.PSIB, 0x00000000013F1234, "IB:4660"}, {cmmsg.PSIPoIB, 0x0000000000021234, "IPOIB:4660"},
	} {
		ps, port, ok := c.id.Port()
		if c.ps.Service(0x1234) != c.id || c.id.String() != c.text || ps != c.ps || port != 0x1234 || !ok {
			t.Errorf("%v: %#x is %v, of %v port %#x, %v", c.ps, uint64(c.ps.Service(0x1234)), c.id, ps, port, ok)
		}
	}
	for _, id := range []cmmsg.ServiceID{0, 0x1000000001061234, 0x01071234} {
		if _, _, ok := id.Port(); ok {
			t.Errorf("%v is taken for one of rdma_cm's", id)
		}
	}
}

func TestSamePort(t *testing.T) {
	tcp := cmmsg.PSTCP.Service(7471)
	for s, want := range map[cmmsg.ServiceID]bool{
		tcp: true, cmmsg.PSUDP.Service(7471): true, cmmsg.PSTCP.Service(7472): false, 7471: false, 1<<32 | tcp: false,
	} {
		if tcp.SamePort(s) != want || s.SamePort(tcp) != want {
			t.Errorf("%v and %v: %v, want %v", tcp, s, !want, want)
		}
	}
	if !cmmsg.ServiceID(1).SamePort(1) || cmmsg.ServiceID(1).SamePort(2) {
		t.Error("service IDs that are not of rdma_cm")
	}
}

// TestW_CMA_02_IPHeader covers both IP versions and headers of neither.
func TestW_CMA_02_IPHeader(t *testing.T) {
	v6a, v6b := netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("fd77::2")
	for _, c := range []struct {
		src, dst, wantSrc, wantDst netip.Addr
		version                    uint8
	}{
		{client, server, client, server, 4},
		{netip.AddrFrom16(client.As16()), server, client, server, 4},
		{v6a, v6b, v6a.WithZone(""), v6b, 6},
	} {
		h := cmmsg.IPHeader(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(c.src, 0x1234), c.dst))
		if len(h) != cmmsg.IPHeaderLen || h.Version() != 0 || h[1] != c.version<<4 || h.SrcPort() != 0x1234 ||
			h.Src() != c.wantSrc ||
			h.Dst() != c.wantDst {
			t.Errorf("%v to %v: %x", c.src, c.dst, []byte(h))
		}
		if got := cmmsg.IP(cmmsg.GID(c.wantSrc)); got != c.wantSrc {
			t.Errorf("GID of %v stands for %v", c.wantSrc, got)
		}
	}
	h := make(cmmsg.IPHeader, cmmsg.IPHeaderLen)
	if h.Src().IsValid() || h.Dst().IsValid() {
		t.Error("a header of zeros has addresses")
	}
}

func TestCodesAsText(t *testing.T) {
	for got, want := range map[string]string{
		cmmsg.RejStale.String():              "10 (stale connection)",
		cmmsg.RejConsumer.String():           "28 (rejected by the program)",
		cmmsg.Reason(34).String():            "34",
		cmmsg.RejVendorNotSupported.String(): "35 (vendor option not supported)",
		cmmsg.Reason(36).String():            "36",
		cmmsg.SIDRReject.String():            "2 (rejected)",
		cmmsg.SIDRStatus(6).String():         "6",
		cmmsg.APRInvalidSL.String():          "13 (invalid SL)",
		cmmsg.APRStatus(14).String():         "14",
		cmmsg.About(3).String():              "message 3",
		cmmsg.XRC.String():                   "XRC",
		cmmsg.Transport(3).String():          "transport type 3.0",
		cmmsg.PortSpace(7).String():          "port space 0x7",
		cmmsg.Kind(0x1B).String():            "CM attribute 0x1b",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLengthsAreBounded checks that a length field beyond its area reads no more than the area.
func TestLengthsAreBounded(t *testing.T) {
	b := bytes.Repeat([]byte{0xFF}, cmmsg.Len)
	for name, n := range map[string]int{"REJ": len(cmmsg.REJ(b).ARI()), "SIDR_REP": len(cmmsg.SIDRREP(b).Info()),
		"APR": len(cmmsg.APR(b).Info())} {
		if n != cmmsg.ARILen {
			t.Errorf("%s: %d bytes of additional information", name, n)
		}
	}
}

func TestW_CM_02_AboutCodes(t *testing.T) {
	for code, about := range map[byte]cmmsg.About{0x00: cmmsg.AboutREQ, 0x40: cmmsg.AboutREP, 0x80: cmmsg.AboutOther} {
		m := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindREJ, 1)
		cmmsg.REJ(m.Data()).Put(1, 2, about, cmmsg.RejConsumer, nil)
		if m.Data()[8] != code {
			t.Errorf("a REJ of %v: %#x, want %#x", about, m.Data()[8], code)
		}
		m = cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindMRA, 1)
		cmmsg.MRA(m.Data()).Put(1, 2, about, 0)
		if m.Data()[8] != code {
			t.Errorf("an MRA of %v: %#x, want %#x", about, m.Data()[8], code)
		}
	}
}

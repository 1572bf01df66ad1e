package devinfo

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// rxe0 has the attributes of the lab's rdma_rxe device; testdata/rxe0-verbose.txt is the output of
// ibv_devinfo -v of rdma-core 44 there.
func rxe0() *device {
	return &device{
		name:        "rxe0",
		transport:   verbs.TransportIB,
		compVectors: 2,
		attr: verbs.DeviceAttr{
			FWVer: "0.0.0", NodeGUID: guid("5054:00ff:fe77:0001"), SysImageGUID: guid("5054:00ff:fe77:0001"), VendorID: 0xffffff,
			PhysPortCnt: 1, MaxMRSize: 1<<64 - 1, PageSizeCap: 0xfffff000, MaxQP: 1048560, MaxQPWR: 1048576,
			DeviceCapFlags: 0x01223c76, MaxSGE: 32, MaxSGERd: 32, MaxCQ: 1048576, MaxCQE: 32767, MaxMR: 524287, MaxPD: 1048576,
			MaxQPRdAtom: 128, MaxResRdAtom: 258048, MaxQPInitRdAtom: 128, AtomicCap: verbs.AtomicHCA, MaxMW: 524287,
			MaxMcastGrp: 8192, MaxMcastQPAttach: 56, MaxTotalMcastQPAttach: 458752, MaxAH: 32767, MaxSRQ: 917503,
			MaxSRQWR: 1048576, MaxSRQSGE: 27, MaxPKeys: 64, LocalCAAckDelay: 15,
		},
		ports: []port{{
			num: 1,
			attr: verbs.PortAttr{
				State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU4096, LinkLayer: verbs.LinkLayerEthernet,
				MaxMsgSz: 0x800000, PortCapFlags: 0x10000, MaxVLNum: 1, PKeyTblLen: 1, GIDTblLen: 1024,
				ActiveWidth: verbs.LinkWidth1X, ActiveSpeed: verbs.LinkSpeedSDR, PhysState: verbs.PhysLinkUp,
			},
			gids: []verbs.GIDEntry{
				{GID: gid("fe80::5054:ff:fe77:1"), Type: verbs.GIDTypeRoCEv2},
				{GID: gid("::ffff:192.168.77.2"), Index: 1, Type: verbs.GIDTypeRoCEv2},
				{GID: gid("fd77::2"), Index: 2, Type: verbs.GIDTypeRoCEv2},
				{Index: 3},
			},
		}},
	}
}

// siw0 is the lab's iWARP device. It has other texts and invalid values.
func siw0() *device {
	return &device{
		name:        "siw0",
		transport:   verbs.TransportIWARP,
		compVectors: 2,
		attr: verbs.DeviceAttr{
			FWVer: "0.0.0", NodeGUID: guid("5054:00ff:fe78:0001"), SysImageGUID: guid("5054:00ff:fe78:0001"), VendorID: 0x626d74,
			VendorPartID: 1, PhysPortCnt: 1, MaxMRSize: 1<<64 - 1, PageSizeCap: 0x1000, MaxQP: 102400, MaxQPWR: 32768,
			DeviceCapFlags: 0x200000, MaxSGE: 6, MaxSGERd: 1, MaxCQ: 102400, MaxCQE: 3276800, MaxMR: 1024000, MaxPD: 102400,
			MaxQPRdAtom: 128, MaxResRdAtom: 13107200, MaxQPInitRdAtom: 128, MaxSRQ: 102400, MaxSRQWR: 327680, MaxSRQSGE: 6,
		},
		ports: []port{{
			num: 1,
			attr: verbs.PortAttr{
				State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU4096, LinkLayer: verbs.LinkLayerEthernet,
				MaxMsgSz: 1<<32 - 1, PortCapFlags: 0x90000, GIDTblLen: 1, ActiveWidth: verbs.LinkWidth1X,
				ActiveSpeed: verbs.LinkSpeedSDR, PhysState: verbs.PhysLinkUp,
			},
		}},
	}
}

func gid(s string) verbs.GID {
	g, err := verbs.ParseGID(s)
	if err != nil {
		panic(err)
	}
	return g
}

func guid(s string) verbs.GUID {
	g, err := verbs.ParseGUID(s)
	if err != nil {
		panic(err)
	}
	return g
}

var dump = flag.Bool("dump", false, "print differing outputs in full")

func TestVerboseLikeC(t *testing.T) {
	for _, d := range []*device{rxe0(), siw0()} {
		want, err := os.ReadFile("testdata/" + d.name + "-verbose.txt")
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		d.print(&got, true)
		sameLines(t, got.String(), string(want))
	}
}

func sameLines(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	if *dump {
		t.Logf("\n%s", got)
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	if len(g) != len(w) {
		t.Errorf("%d lines, want %d", len(g), len(w))
	}
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Errorf("line %d: %q, want %q", i+1, g[i], w[i])
		}
	}
}

// Without -v the output is a subset of the lines.
func TestShort(t *testing.T) {
	var short, long bytes.Buffer
	rxe0().print(&short, false)
	rxe0().print(&long, true)
	const lines = 18 // ibv_devinfo of rdma-core 44 on a device with one port
	if got := strings.Count(short.String(), "\n"); got != lines {
		t.Errorf("%d lines, want %d:\n%s", got, lines, short.String())
	}
	rest := long.String()
	for line := range strings.Lines(short.String()) {
		_, after, ok := strings.Cut(rest, line)
		if !ok {
			t.Fatalf("the long form lacks %q", line)
		}
		rest = after
	}
}

func TestFlagsWithoutName(t *testing.T) {
	var b bytes.Buffer
	printer{&b}.flags(verbs.DeviceXRC | 1<<63)
	if want := "\t\t\t\t\tXRC\n\t\t\t\t\tUnknown flags: 0x8000000000000000\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{portState(verbs.PortDown), "PORT_DOWN"},
		{portState(verbs.PortNOP), "invalid state"},
		{physState(verbs.PhysPortConfigurationTraining), "PORT_CONFIGURATION TRAINNING"},
		{physState(0), "invalid physical state"},
		{physState(8), "invalid physical state"},
		{mtu(verbs.MTU256), "256"},
		{mtu(0), "invalid MTU"},
		{linkLayer(verbs.LinkLayerInfiniBand), "InfiniBand"},
		{linkLayer(9), "Unknown"},
		{virtualLanes(5), "15"},
		{virtualLanes(6), "invalid value"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

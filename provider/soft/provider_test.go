package soft

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

func names(specs []spec) (n []string) {
	for _, s := range specs {
		n = append(n, s.name)
	}
	return n
}

// loopbackName returns the name of the loopback interface.
func loopbackName(t *testing.T) string {
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ifs, func(i net.Interface) bool { return hasAddr(&i, netip.MustParseAddr("127.0.0.1")) })
	if i < 0 {
		t.Fatal("no interface has 127.0.0.1")
	}
	return ifs[i].Name
}

func TestDevicesOfTheInterfaces(t *testing.T) {
	specs, err := listSpecs("")
	if err != nil {
		t.Fatal(err)
	}
	lo := loopbackName(t)
	if len(specs) == 0 || specs[len(specs)-1].name != "vrb_"+lo {
		t.Errorf("the loopback device is not the last: %v", names(specs))
	}
	for _, s := range specs {
		ifi, err := net.InterfaceByName(s.iface)
		if err != nil || ifi.Flags&net.FlagUp == 0 || len(addrsOf(ifi)) == 0 || s.name != "vrb_"+s.iface {
			t.Errorf("device %+v: %v", s, err)
		}
	}
}

func TestVerbenaDevices(t *testing.T) {
	lo := loopbackName(t)
	cases := []struct {
		value string
		want  []string
		err   string // part of the error
	}{
		{lo, []string{"vrb_" + lo}, ""},
		{" vrb_" + lo + " ", []string{"vrb_" + lo}, ""},
		{"a=127.0.0.1,b=127.0.0.2+127.0.0.3", []string{"a", "b"}, ""},
		{"a=::ffff:127.0.0.1", []string{"a"}, ""},
		{"nosuch0", nil, `unknown network interface "nosuch0"; the interfaces are `},
		{lo + ",nosuch0,b=127.0.0.2", []string{"vrb_" + lo, "b"}, `entry "nosuch0"`},
		{"a=127.0.0.1,a=127.0.0.2", []string{"a"}, "two devices have the name a"},
		{"a=127.0.0.1+127.0.0.2/127.0.0.3", []string{"a"}, ""},
		{"a=127.0.0.1/127.0.0.1", nil, "must be given once"},
		{"a=127.0.0.1/8", nil, `address "8": must be an IP address ('/' separates the ports`},
		{"a=127.0.0.1/", nil, `address "": must be an IP address`},
		{"a=127.0.0.1" + strings.Repeat("/127.0.0.2", 16), nil, "17 ports: must be 1 to 16"},
		{"a=", nil, `address "": must be an IP address`},
		{"a=localhost", nil, `address "localhost": must be an IP address`},
		{"a=127.0.0.1+127.0.0.1", nil, "must be given once"},
		{"a=224.0.0.1", nil, "must be a unicast address"},
		{"a=0.0.0.0", nil, "must be a unicast address"},
		{"a=192.0.2.77", nil, "no network interface has the address 192.0.2.77"},
		{"=127.0.0.1", nil, "must be 1 to 63 letters"},
		{"a/b=127.0.0.1", nil, "must be 1 to 63 letters"},
		{"..=127.0.0.1", nil, "must be 1 to 63 letters"},
		{",", nil, "unknown network interface"},
	}
	for _, c := range cases {
		specs, err := listSpecs(c.value)
		if !slices.Equal(names(specs), c.want) {
			t.Errorf("%q: devices %v, want %v", c.value, names(specs), c.want)
		}
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%q: %v", c.value, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !errors.Is(err, verbs.EINVAL)):
			t.Errorf("%q: error %v, want one about %s", c.value, err, c.err)
		case err != nil && (!strings.Contains(err.Error(), envDevices) || !strings.Contains(err.Error(), "NAME=ADDR")):
			t.Errorf("%q: the error does not say which values are allowed: %v", c.value, err)
		}
	}
}

// TestV_DEV_10_DevicesThroughVerbs: verbs lists the devices, and a second call returns the same ones.
func TestV_DEV_10_DevicesThroughVerbs(t *testing.T) {
	t.Setenv(envDevices, "a=127.0.0.1,b=127.0.0.2")
	list, err := verbs.Devices()
	if err != nil || len(list) != 2 || list[0].Name() != "a" || list[1].Name() != "b" {
		t.Fatalf("Devices: %v, %v", list, err)
	}
	first, _ := soft.Devices()
	second, _ := soft.Devices()
	if first[0] != second[0] || first[1] != second[1] {
		t.Error("the second list has other devices")
	}
	t.Setenv(envDevices, "nonsense")
	if list, err := verbs.Devices(); err == nil || len(list) != 0 {
		t.Errorf("with a wrong %s: %v, %v", envDevices, list, err)
	}
}

func TestV_DEV_12_GUIDs(t *testing.T) {
	if g := eui64([6]byte{0x52, 0x54, 0x00, 0x77, 0x00, 0x01}); g.String() != "5054:00ff:fe77:0001" {
		t.Errorf("EUI-64 is %v", g)
	}
	one := netip.MustParseAddr("127.0.0.1")
	a, b := pseudoGUID("a", []netip.Addr{one}), pseudoGUID("b", []netip.Addr{one})
	if a == b || a != pseudoGUID("a", []netip.Addr{one}) || a[0]&3 != 0 || a == (verbs.GUID{}) {
		t.Errorf("derived GUIDs %v and %v", a, b)
	}
	d := newDevice(spec{name: "a", addrs: []netip.Addr{one}})
	if attr := d.deviceAttr(); attr.NodeGUID != d.Info().GUID || attr.NodeGUID != a {
		t.Errorf("GUIDs %v, %v and %v", attr.NodeGUID, d.Info().GUID, a)
	}
}

package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// finds checks that the report has one finding with this level, text and remedy. An empty remedy means
// none.
func finds(t *testing.T, what string, r *report, l level, found, typ string) {
	t.Helper()
	if len(r.all) != 1 {
		t.Errorf("%s: %+v", what, r.all)
		return
	}
	f := r.all[0]
	if f.Level != l || !strings.Contains(f.Found, found) || !strings.Contains(f.Type, typ) ||
		(typ == "") != (f.Type == "") {
		t.Errorf("%s: %+v\nwant %s, %q, %q", what, f, l, found, typ)
	}
}

func TestDevices(t *testing.T) {
	var r report
	r.devices(nil, nil)
	finds(t, "none", &r, bad, "no device", "ip addr add")
	r = report{}
	r.devices(nil, errors.New("VERBENA_DEVICES: entry x: what?"))
	finds(t, "an invalid list", &r, bad, "entry x: what?", "correct VERBENA_DEVICES")
	r = report{}
	r.devices(nil, errors.New("VERBENA_SHM: what?"))
	finds(t, "another invalid variable", &r, bad, "VERBENA_SHM: what?", "correct the variable")
	t.Setenv("VERBENA_PROVIDER", "hw") // which this program does not have
	r = report{}
	_, err := verbs.Devices()
	r.devices(nil, err)
	finds(t, "no adapters", &r, bad, "only soft", "make build-hw, and use bin/verbena-hw; or unset VERBENA_PROVIDER")
}

func TestPKeysOfNoDevice(t *testing.T) {
	dev, err := soft.New(soft.Config{Name: "vrb_here", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		"": "", "0xffff": "", "vrb_here=0xffff,vrb_here/1=0x8001": "",
		"0xffff, vrb_eth9/1=0x8001": "no device vrb_eth9:",
	} {
		t.Setenv("VERBENA_PKEYS", value)
		var r report
		if r.pkeys([]*verbs.Device{dev.Device}); want != "" {
			finds(t, value, &r, bad, want, "ibv_devices")
		} else if len(r.all) != 0 {
			t.Errorf("%q: %+v", value, r.all)
		}
	}
}

// The errors with which opening the sockets may fail. The directory of a verbena serve that has ended is no advice.
func TestDevicePort(t *testing.T) {
	run := t.TempDir()
	t.Setenv("VERBENA_RUN", run)
	if err := os.Mkdir(filepath.Join(run, "ended"), 0o710); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		err        error
		l          level
		found, typ string
	}{
		{"works", nil, good, "its port works, path MTU 4096, GIDs 1: 10.0.0.1", ""},
		{"in use", syscall.EADDRINUSE, bad, "EADDRINUSE", "ss -ulpn 'sport = 4791'"},
		{"of another user", syscall.EACCES, bad, "EACCES", "verbena serve --group"},
		{"not admitted", &host.NotAdmittedError{Group: "rdma"}, bad, "EACCES", "usermod -aG rdma "},
		{"not admitted, no group", &host.NotAdmittedError{}, bad, "EACCES", "verbena serve --group"},
		{"a directory that others can write to", syscall.EPERM, bad, "EPERM", "unset VERBENA_RUN"},
		{"address gone", syscall.EADDRNOTAVAIL, bad, "EADDRNOTAVAIL", "ip addr"},
		{"out of descriptors", syscall.EMFILE, bad, "EMFILE", "ulimit -n"},
		{"the leader is stopped", syscall.ETIMEDOUT, bad, "ETIMEDOUT", "kill -CONT"},
	} {
		fabric := mem.NewFabric(mem.Config{})
		dev, err := soft.New(softlink.On(soft.Config{
			Name: "vrb_x", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}, softlink.Links{Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
			if c.err != nil {
				return nil, c.err
			}
			return fabric.Open(addrs, ports)
		}}))
		if err != nil {
			t.Fatal(err)
		}
		var r report
		r.devices([]*verbs.Device{dev.Device}, nil)
		finds(t, c.name, &r, c.l, c.found, c.typ)
	}
}

// The remedy names the interface, not the device.
func TestPort(t *testing.T) {
	entry := func(index int, addr string) verbs.GIDEntry {
		return verbs.GIDEntry{Index: index, GID: verbs.GIDFromAddr(netip.MustParseAddr(addr))}
	}
	table := []verbs.GIDEntry{entry(0, "fe80::1"), entry(1, "10.0.0.1"), entry(2, "fd00::1")}
	for _, c := range []struct {
		name, iface string
		overTCP     bool
		port        verbs.PortAttr
		table       []verbs.GIDEntry
		l           level
		found, typ  string
	}{
		{"all is well", "eth0", false, verbs.PortAttr{State: verbs.PortActive, ActiveMTU: verbs.MTU4096}, table, good,
			"path MTU 4096, GIDs 1: 10.0.0.1, 2: fd00::1", ""},
		{"down", "eth0", false, verbs.PortAttr{State: verbs.PortDown, ActiveMTU: verbs.MTU4096}, table,
			bad, "its port is down", "ip link set dev eth0 up"},
		{"no address", "eth0", false, verbs.PortAttr{State: verbs.PortActive, ActiveMTU: verbs.MTU4096}, table[:1], note,
			"no address", "ip addr add ADDRESS/LENGTH dev eth0"},
		{"a small MTU", "eth0", false, verbs.PortAttr{State: verbs.PortActive, ActiveMTU: verbs.MTU1024}, table, note,
			"path MTU 1024", "ip link set dev eth0 mtu 4200"},
		{"a small MTU of loopback", "lo", false, verbs.PortAttr{State: verbs.PortActive, ActiveMTU: verbs.MTU1024}, table,
			good, "path MTU 1024", ""},
		{"a small MTU below TCP", "eth0", true, verbs.PortAttr{State: verbs.PortActive, ActiveMTU: verbs.MTU1024}, table,
			good, "path MTU 1024", ""},
		{"an iWARP adapter", "lo", true, verbs.PortAttr{State: verbs.PortActive, ActiveMTU: verbs.MTU1024}, table[:1], good,
			"path MTU 1024, addresses 127.0.0.1", ""},
		{"an iWARP adapter without an address", "none", true, verbs.PortAttr{State: verbs.PortActive,
			ActiveMTU: verbs.MTU1024}, table[:1], note, "no address", "ip addr add ADDRESS/LENGTH dev none"},
	} {
		if c.name == "an iWARP adapter" && runtime.GOOS != "linux" {
			continue // loopback has another name
		}
		var r report
		taken := false
		r.port("device x", c.iface, &c.port, c.table, c.overTCP, func() error { taken = true; return nil })
		finds(t, c.name, &r, c.l, c.found, c.typ)
		if want := strings.Contains(c.found, "path MTU"); taken != want {
			t.Errorf("%s: port opened: %v", c.name, taken)
		}
	}
}

func TestBuffers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var r report
	if r.buffers(dir); len(r.all) != 0 {
		t.Errorf("another system: %+v", r.all)
	}
	write("rmem_max", "212992\n")
	r.buffers(dir)
	finds(t, "what Linux has", &r, note, "212992 bytes: bursts", "sysctl -w net.core.rmem_max=4194304")
	write("rmem_max", "4194304\n")
	r = report{}
	r.buffers(dir)
	finds(t, "large", &r, good, "4194304 bytes", "")
	write("rmem_max", "many\n")
	r = report{}
	r.buffers(dir)
	finds(t, "no number", &r, note, `"many"`, "")
	write("rmem_max", "4194304\n")
	write("wmem_max", "4194303\n")
	r = report{}
	if r.buffers(dir); len(r.all) != 2 || r.all[1].Level != note || r.all[1].What != "net.core.wmem_max" ||
		r.problems() != 0 {
		t.Errorf("%+v", r.all)
	}
}

func TestSwitches(t *testing.T) {
	names := []string{"VERBENA_SHM", "VERBENA_SHM_DIRECT", "VERBENA_UDP_GSO", "VERBENA_UDP_GRO", "VERBENA_UDP_LEND",
		"VERBENA_UDP", "VERBENA_FAULT"}
	for _, n := range names {
		t.Setenv(n, "")
	}
	var r report
	if r.switches(); len(r.all) != 0 {
		t.Errorf("nothing is switched: %+v", r.all)
	}
	for n, value := range map[string]string{
		"VERBENA_SHM": "0", "VERBENA_SHM_DIRECT": "0", "VERBENA_UDP_GSO": "0", "VERBENA_UDP_GRO": "0",
		"VERBENA_UDP_LEND": "0", "VERBENA_UDP": "plain", "VERBENA_FAULT": "loss=0.5",
	} {
		t.Setenv(n, value)
		r = report{}
		r.switches()
		finds(t, n, &r, note, "", "unset "+n)
		if what := r.all[0].What; what != n+"="+value {
			t.Errorf("%s: %q", n, what)
		}
		t.Setenv(n, "")
	}
}

func TestWay(t *testing.T) {
	peer, here, other := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1")
	zoned := netip.MustParseAddr("fe80::1%eth0")
	for _, c := range []struct {
		name       string
		w          way
		l          level
		found, typ string
	}{
		{"all is well", way{here, here, "vrb_a", 1, 4176, 4096}, good,
			"source address 10.0.0.1, device vrb_a, GID index 1, MTU of the route 4176", ""},
		{"the route is a byte too small", way{here, here, "vrb_a", 1, 4175, 4096}, bad,
			"too small for the device's path MTU of 4096", "-m 2048"},
		{"a route of 576 bytes", way{here, here, "vrb_a", 1, 576, 4096}, bad, "too small", "-m 256"},
		{"no path MTU fits", way{here, here, "vrb_a", 1, 300, 256}, bad, "too small", "make the route's MTU larger"},
		{"the MTU is not known", way{here, here, "vrb_a", 1, 0, 4096}, good, "GID index 1", ""},
		{"another source", way{other, here, "vrb_a", 1, 1500, 1024}, note, "but the device sends from 10.0.0.1",
			"verbena ibv_devinfo -v shows whether a device has 192.0.2.1"},
		{"link-local", way{zoned, zoned.WithZone(""), "vrb_a", 0, 1500, 1024}, good, "source address fe80::1%eth0", ""},
	} {
		var r report
		r.way("peer", peer, c.w)
		finds(t, c.name, &r, c.l, c.found, c.typ)
	}
}

func TestReached(t *testing.T) {
	peer := netip.MustParseAddr("fd00::9")
	var r report
	if !r.reached("peer", peer, nil) || len(r.all) != 0 {
		t.Errorf("%+v", r.all)
	}
	for err, want := range map[syscall.Errno][2]string{
		syscall.ECONNREFUSED: {"UDP port 4791 is closed there", "firewall-cmd --add-port=4791/udp"},
		syscall.EPERM:        {"this host's firewall rejects it", "nft list ruleset"},
		syscall.EHOSTUNREACH: {"no route to host", "ping fd00::9"},
	} {
		r = report{}
		if r.reached("peer", peer, &os.SyscallError{Syscall: "write", Err: err}) {
			t.Errorf("%v: reached", err)
		}
		finds(t, err.Error(), &r, bad, want[0], want[1])
	}
}

func TestAnswered(t *testing.T) {
	peer := netip.MustParseAddr("10.0.0.9")
	for _, c := range []struct {
		err        error
		l          level
		found, typ string
	}{
		{nil, good, "a connection was established in 1.23ms", ""},
		{syscall.ECONNREFUSED, good, "its connection manager answers in 1.23ms", ""},
		{context.DeadlineExceeded, bad, "no answer to a connection request within 1ms",
			"ping 10.0.0.9"},
		{&rdmacm.Error{Op: "connect", Errno: syscall.ECONNREFUSED, Detail: "the peer refused"}, good,
			"its connection manager answers in 1.23ms", ""},
		{closedPort(), bad, "UDP port 4791 is closed there, or a firewall rejects it", "firewall-cmd --add-port=4791/udp"},
		{failedDevice(syscall.EMFILE), bad, "not asked, since this host's device failed: resolve_addr: create_gsi",
			"ulimit -n"},
	} {
		var r report
		r.answered("peer", peer, c.err, 1234*time.Microsecond)
		finds(t, c.found, &r, c.l, c.found, c.typ)
	}
}

// closedPort is the error of a connection whose request an ICMP message has answered.
func closedPort() error {
	cause := fmt.Errorf("UDP port 4791 of 10.0.0.9 is closed: %w", syscall.ECONNREFUSED)
	return &rdmacm.Error{Op: "connect", Errno: syscall.ECONNREFUSED, Err: cause}
}

// TestOwnAddress: the port of this host's own address is open while doctor runs, so whoever refuses it is a firewall.
func TestOwnAddress(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.1")
	for _, c := range []struct {
		err   error
		found string
	}{
		{syscall.ECONNREFUSED, ""}, {failedDevice(syscall.EMFILE), ""},
		{closedPort(), "a firewall of this host rejects UDP port 4791"},
		{context.DeadlineExceeded, "a firewall of this host drops UDP port 4791"},
	} {
		var r report
		r.judgeSelf(own, c.err)
		if c.found == "" {
			if len(r.all) != 0 {
				t.Errorf("%v: %+v", c.err, r.all)
			}
			continue
		}
		finds(t, c.found, &r, bad, c.found, "nft list ruleset")
	}
}

// failedDevice is the error of a connection whose device could not open its port.
func failedDevice(errno syscall.Errno) error {
	return &verbs.Error{Op: "resolve_addr", Errno: errno, Err: &verbs.Error{Op: "create_gsi", Errno: errno}}
}

// TestOwnPortAfterSilence: only a request that was sent and not answered makes doctor ask this host's own port. After a
// failure of the device it would blame a firewall.
func TestOwnPortAfterSilence(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, syscall.ECONNREFUSED: false, context.DeadlineExceeded: true, failedDevice(syscall.EMFILE): false,
		failedDevice(syscall.EACCES): false, failedDevice(syscall.ETIMEDOUT): false,
	} {
		if got := silent(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// Peer names, address families and an absent peer, with the system's own resolver and routes.
func TestPeer(t *testing.T) {
	var r report
	r.peer(t.Context(), "999.1.1.1")
	finds(t, "no address", &r, bad, "lookup 999.1.1.1", "correct the name")
	t.Setenv("VERBENA_DEVICES", "four=127.0.0.1")
	r = report{}
	r.peer(t.Context(), "fe80::1")
	finds(t, "no zone", &r, bad, "must have a zone", "verbena doctor fe80::1%eth0")
	r = report{}
	if r.peer(t.Context(), "::1"); len(r.all) != 1 || r.all[0].Level != bad {
		t.Errorf("an IPv6 peer of an IPv4 device: %+v", r.all)
	}
}

// TestPeerOverIWARP: with iWARP a refused TCP connection shows that the host is there; UDP port 4791 does not matter.
func TestPeerOverIWARP(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has the iWARP device")
	}
	t.Setenv(driver.EnvTransport, driver.IWARP)
	var r report
	r.peer(t.Context(), "127.0.0.1")
	last := report{r.all[len(r.all)-1:]}
	finds(t, "loopback", &last, good, "iWARP: the host refuses TCP port 1", "")
	route := report{r.all[:1]}
	finds(t, "the route", &route, good, "source address 127.0.0.1, iWARP device vrw_", "")
	for _, f := range r.all {
		if strings.Contains(f.Found+f.Type, "4791") || strings.Contains(f.Found, "vrb_") {
			t.Errorf("about UDP or a RoCE device: %+v", f)
		}
	}
	t.Setenv("VERBENA_PROVIDER", "iwarp") // without RoCE devices
	r = report{}
	if r.peer(t.Context(), "127.0.0.1"); r.problems() > 0 {
		t.Errorf("without RoCE devices: %+v", r.all)
	}
}

func TestPrint(t *testing.T) {
	r := report{all: []finding{{good, "a", "is well", ""}, {note, "b", "could be better", "do it"},
		{bad, "c", "is broken", "mend it"}}}
	var out bytes.Buffer
	r.print(term.NewPrinter(&out))
	want := "ok       a: is well\nnote     b: could be better\n         -> do it\n" +
		"PROBLEM  c: is broken\n         -> mend it\n\n1 problem found.\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
	for n, want := range map[int]string{0: "No problem found.", 2: "2 problems found."} {
		out.Reset()
		(&report{all: slices.Repeat([]finding{{bad, "c", "is broken", ""}}, n)}).print(term.NewPrinter(&out))
		if !strings.HasSuffix(out.String(), "\n\n"+want+"\n") && out.String() != "\n"+want+"\n" {
			t.Errorf("%q", out.String())
		}
	}
}

func TestMisused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"a", "b"}, "more than one peer"}, {[]string{""}, "the peer is empty"},
		{[]string{"--timeout", "0s", "a"}, "must be positive"},
		{[]string{"--nonsense"}, "unknown option --nonsense"},
	} {
		var o, e bytes.Buffer
		if status := run(&tool.Env{Argv0: "verbena doctor", Stdout: &o, Stderr: &e}, c.args); status != 1 ||
			!strings.Contains(e.String(), c.want) {
			t.Errorf("%q: %d %q", c.args, status, e.String())
		}
	}
}

func TestFirewallRules(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		l           level
		found, typ  string
	}{
		{"a rule", "table inet f {\n\tchain i {\n\t\ttype filter hook input priority 0; policy accept;\n\t\tudp dport " +
			"4791 drop\n\t}\n}\n",
			bad, `chain inet f i has the rule "udp dport 4791 drop"`, "nft delete rule inet f i"},
		{"a set", "table ip f {\n\tchain o {\n\t\tudp dport { 53, 4791 } reject\n\t}\n}\n", bad,
			"udp dport { 53, 4791 } reject", "nft"},
		{"a policy", "table inet f {\n\tchain i {\n\t\ttype filter hook input priority 0; policy drop;\n\t\ttcp dport " +
			"22 accept\n\t}\n}\n",
			note, "none names UDP port 4791", "nft insert rule inet f i udp dport 4791 accept"},
		{"long packets", "table inet f {\n\tchain i {\n\t\tudp length > 1000 drop\n\t}\n}\n", bad, "by their length",
			"accept UDP port 4791 before"},
		{"long packets of the port", "table inet f {\n\tchain i {\n\t\tudp dport 4791 meta length > 1000 drop\n\t}\n}\n",
			bad, "has the rule", "nft delete rule"},
		{"a rate", "table inet f {\n\tchain i {\n\t\tmeta l4proto udp limit rate over 9/second drop\n\t}\n}\n", note,
			"a rate limit", "accept UDP port 4791 before"},
		{"a rate of the port", "table inet f {\n\tchain i {\n\t\tudp dport 4791 limit rate 9/second accept\n\t}\n}\n",
			note, "a rate limit", "without a limit"},
	} {
		var r report
		r.nftables(c.rules)
		finds(t, c.name, &r, c.l, c.found, c.typ)
	}
	var r report
	r.nftables("table inet f {\n\tchain i {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tudp dport 4791 " +
		"accept\n\t}\n}\n")
	r.iptables("*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\nCOMMIT\n")
	if len(r.all) != 0 {
		t.Errorf("%+v", r.all)
	}
	r.iptables("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j DROP\nCOMMIT\n")
	finds(t, "iptables", &r, bad, "table filter has the rule", "iptables -t filter -D INPUT -p udp")
	r = report{}
	r.iptables("*filter\n:INPUT DROP [0:0]\nCOMMIT\n")
	finds(t, "iptables policy", &r, note, "chain INPUT drops", "iptables -I INPUT")
	for rule, want := range map[string]string{
		"-A INPUT -p udp -m length --length 1000:65535 -j DROP":                   "by their length",
		"-A INPUT -p udp -m hashlimit --hashlimit-above 9/sec -j DROP":            "a rate limit",
		"-A INPUT -p udp -m udp --dport 4791 -m limit --limit 9/sec -j ACCEPT":    "a rate limit",
		"-A INPUT -p udp -m udp --dport 53 -m length --length 1000:65535 -j DROP": "",
		"-A INPUT -p tcp -m length --length 1000:65535 -j DROP":                   "",
		"-A INPUT -p udp -m length --length 1000:65535 -j ACCEPT":                 "",
	} {
		r = report{}
		r.iptables("*filter\n:INPUT ACCEPT [0:0]\n" + rule + "\nCOMMIT\n")
		if len(r.all) != min(1, len(want)) || want != "" && !strings.Contains(r.all[0].Found, want) {
			t.Errorf("%s: %+v, want %q", rule, r.all, want)
		}
	}
}

// A closed port of the peer answers short packets and not long ones, or this host rejects long ones.
func TestLongPackets(t *testing.T) {
	const longer = 500
	for _, c := range []struct {
		name        string
		roce        error // the result of a long packet to the RoCE port
		short, long error // of packets to a closed port
		found       string
	}{
		{"all pass", nil, syscall.ECONNREFUSED, syscall.ECONNREFUSED, ""},
		{"the host does not answer", nil, nil, nil, ""},
		{"long ones are dropped", nil, syscall.ECONNREFUSED, nil, "a firewall drops long ones"},
		{"rejected here", syscall.EPERM, syscall.ECONNREFUSED, nil, "this host's firewall rejects UDP packets of 1104 bytes"},
	} {
		var r report
		w := way{source: netip.MustParseAddr("192.0.2.1"), mtu: 1500, pathMTU: 1024}
		r.long("peer x", &w, netip.MustParseAddr("192.0.2.2"), func(_ context.Context, src netip.Addr, dst netip.AddrPort,
			p lookup.Probe) error {
			switch size := len(p(netip.AddrPortFrom(src, 1), dst)); {
			case dst.Port() == rocePort:
				return c.roce
			case size > longer:
				return c.long
			}
			return c.short
		})
		if len(r.all) != min(1, len(c.found)) || c.found != "" && !strings.Contains(r.all[0].Found, c.found) {
			t.Errorf("%s: %+v", c.name, r.all)
		}
	}
}

// An interface that cannot send a packet of the smallest path MTU.
func TestSmallMTU(t *testing.T) {
	var r report
	if r.smallMTU("device x", "eth0", 336) || !r.smallMTU("device x", "eth0", 335) {
		t.Errorf("%+v", r.all)
	}
	finds(t, "small", &r, bad, "interface eth0 is 335 bytes: must be at least 336", "mtu 1500")
}

func TestPath(t *testing.T) {
	here, peer := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	for _, c := range []struct {
		name       string
		mtu        int // of the narrowest link; 0: no answers, -1: not permitted
		l          level
		found, typ string
	}{
		{"wide", 9000, good, "pings of 4176 bytes pass", ""},
		{"a peer with 1500", 1500, bad, "on the way is 1500", "path MTU 1024"},
		{"a tunnel", 1420, bad, "on the way is 1420", "path MTU 1024"},
		{"2300", 2300, bad, "on the way is 2300", "path MTU 2048"},
		{"no ICMP", 0, note, "no answer to an ICMP echo request", ""},
		{"no right", -1, note, "may not send ICMP", "ping_group_range"},
	} {
		var r report
		if r.path("peer", &way{source: here, device: "vrb_a", mtu: 9000, pathMTU: 4096}, peer,
			func(_ context.Context, _, _ netip.Addr, size int) (answered, can bool) {
				return size <= c.mtu, c.mtu >= 0
			}) == (c.l == bad) {
			t.Errorf("%s: whether a limit was found is wrong", c.name)
		}
		finds(t, c.name, &r, c.l, c.found, c.typ)
	}
}

func TestKernelDevices(t *testing.T) {
	dir := t.TempDir()
	for name, files := range map[string][]string{"rxe0": {"parent"}, "mlx5_0": {"node_guid"}} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, name, f), []byte("eth0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var r report
	r.kernel(dir)
	finds(t, "rxe", &r, note, "the kernel's soft-RoCE, on eth0", "rdma link delete rxe0")
}

// Root is not told to become root.
func TestAdviceForRoot(t *testing.T) {
	for _, f := range []func(root bool) string{rulesAdvice, asRoot} {
		if got := f(true); strings.Contains(got, "as root") {
			t.Errorf("root is told %q", got)
		}
		if got := f(false); !strings.Contains(got, "as root") {
			t.Errorf("another user is told %q", got)
		}
	}
}

package ibstat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestNetDevOfDevices: -v prints what is known of a software device, and what the kernel tells of an adapter.
func TestNetDevOfDevices(t *testing.T) {
	ports := []verbs.PortAttr{{State: verbs.PortActive}, {State: verbs.PortDown}}
	soft := &device{name: "two", netdev: "eth0", attr: verbs.DeviceAttr{FWVer: "1.2"}, ports: ports,
		gids: []verbs.GIDEntry{{Port: 1, NetDev: "eth0"}, {Port: 2}, {Port: 2, NetDev: "eth1"}}}
	for verbose, want := range map[bool]string{
		false: "two port 1 ==> eth0 (Up)\ntwo port 2 ==> eth1 (Down)\n",
		true: "NA two (verbena - NA)  fw 1.2 port 1 (ACTIVE) ==> eth0 (Up)\n" +
			"NA two (verbena - NA)  fw 1.2 port 2 (DOWN  ) ==> eth1 (Down)\n",
	} {
		var b strings.Builder
		if printNetDev(&b, soft, verbose); b.String() != want {
			t.Errorf("verbose %v: %q, want %q", verbose, b.String(), want)
		}
	}

	folder := t.TempDir()
	dir := filepath.Join(folder, "mlx5_0")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../0000:02:00.0", filepath.Join(dir, "device")); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hca_type"), []byte("MT4115\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"mlx5_0": "0000:02:00.0 MT4115", "mlx5_1": "NA NA"} {
		pci, kind := (&device{name: name, adapter: true}).hardware(folder)
		if pci+" "+kind != want {
			t.Errorf("%s: %s %s, want %s", name, pci, kind, want)
		}
	}
}

package rdmashow

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/control"
)

// The lines are those of iproute2 6.1.
func TestDev(t *testing.T) {
	const line = "0: rxe0: node_type ca node_guid 5054:00ff:fe77:0001 sys_image_guid 5054:00ff:fe77:0001 \n"
	h := linux()
	for args, want := range map[string]string{
		"dev show rxe0": line, "dev": line + strings.NewReplacer("0: rxe0", "1: siw0", "ca", "rnic").Replace(line),
		"-j dev show rxe0": `[{"ifindex":0,"ifname":"rxe0","node_type":"ca","node_guid":"5054:00ff:fe77:0001",` +
			`"sys_image_guid":"5054:00ff:fe77:0001"}]` + "\n",
		"-V": "rdma utility, of Verbena, with the output of iproute2-6.1.0\n",
	} {
		if status, out, errs := rdma(h, args); status != 0 || out != want {
			t.Errorf("%s: status %d, %q, %s", args, status, out, errs)
		}
	}
	for _, args := range []string{"dev show nosuch", "dev show rxe0 rxe0", "monitor x"} {
		if status, _, errs := rdma(h, args); status != 1 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q", args, status, errs)
		}
	}
}

// Monitor prints what changes.
func TestMonitor(t *testing.T) {
	up, down := port{"ACTIVE", "LINK_UP", "eth0", 2}, port{"DOWN", "DISABLED", "eth0", 2}
	var b bytes.Buffer
	one := func(p port) []port { return []port{p} }
	printChanges(&b, map[string][]port{"same": one(up), "gone": one(up), "falls": {up, up}, "moves": one(up)},
		map[string][]port{"same": one(up), "new": one(up), "falls": {up, down},
			"moves": one(port{"ACTIVE", "LINK_UP", "eth1", 3})})
	const want = "[LINK]\tlink falls/2 state DOWN physical_state DISABLED netdev eth0\n" +
		"[UNREGISTER]\tdev gone\n" +
		"[NETDEV_ATTACH]\tdev moves port 1 netdev eth1\n" +
		"[REGISTER]\tdev new\n[LINK]\tlink new/1 state ACTIVE physical_state LINK_UP netdev eth0\n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// Programs that this user may not ask are one line, others a line each.
func TestForbiddenProgramsAreSummarised(t *testing.T) {
	h := linux()
	for i := range 5 {
		h.mute = append(h.mute, control.Silent{Name: fmt.Sprint("p", i), Err: fmt.Errorf("dial: %w", syscall.EACCES)})
	}
	h.mute = append(h.mute, control.Silent{Name: "slow", Err: errors.New("no answer")})
	_, _, errs := rdma(h, "resource")
	if errs != "verbena rdma: slow: no answer\nverbena rdma: 5 programs of other users are not shown: run this as "+
		"root, or as "+
		"those users\n" {
		t.Errorf("%s", errs)
	}
}

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// The tools print what their originals print of a device.
func TestIBStat(t *testing.T) {
	for args, want := range map[string]string{
		"ibstat": "(?s)^CA 'vrb_test'\n\tCA type: \n\tNumber of ports: 1\n\tFirmware version: .*\n\tNode GUID: " +
			"0x[0-9a-f]{16}\n" +
			".*\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: [0-9.]+\n.*\t\tLink layer: Ethernet\n$",
		"ibstat -l":          "^vrb_test\n$",
		"ibstat -s vrb_test": "(?s)^CA 'vrb_test'\n.*System image GUID: 0x[0-9a-f]{16}\n$",
		"ibstat -p":          "^0x[0-9a-f]{16}\n$",
		"ibstatus vrb_test:1": "(?s)^Infiniband device 'vrb_test' port 1 status:\n\tdefault gid:\t " +
			"([0-9a-f]{4}:){7}[0-9a-f]{4}\n" +
			".*\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t [0-9.]+ Gb/sec \\([0-9]+X " +
			"[A-Z]+\\)\n\tlink_layer:\t Ethernet\n\n$",
		"show_gids":    "(?m)^vrb_test\t1\t\\d+\t0000:0000:0000:0000:0000:ffff:7f04:[0-9a-f]{2}01\t" + ownAddr + "  \tv2\t",
		"ibdev2netdev": "^vrb_test port 1 ==> \\S+ \\(Up\\)\n$",
		"ibdev2netdev -v": "^NA vrb_test \\(verbena - NA\\)  fw \\S+ port 1 \\(ACTIVE\\) ==> \\S+ " +
			"\\(Up\\)\n$",
		"rdma dev": "^0: vrb_test: node_type ca node_guid ([0-9a-f]{4}:){3}[0-9a-f]{4} sys_image_guid " +
			"([0-9a-f]{4}:){3}[0-9a-f]{4} \n$",
	} {
		words := strings.Fields(args)
		name, rest := words[0], words[1:]
		if name == "rdma" {
			name, rest = "verbena", words
		}
		if out, errs, status := output(t, name, rest...); status != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: status %d, %q, %s", args, status, out, errs)
		}
	}
	for args, want := range map[string]string{
		"ibstat nosuch": `no device is named "nosuch"; there are`, "ibstatus vrb_test:2": `vrb_test: port "2": must be 1`,
		"ibstat a b": "more than one device", "ibdev2netdev x": `unexpected argument "x"`, "ibping": "one host must be given",
		"ibping -S": "no server is necessary",
	} {
		words := strings.Fields(args)
		if _, errs, status := output(t, words[0], words[1:]...); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", args, status, errs)
		}
	}
}

// A device with two ports has both in each tool, and one where it is asked for.
func TestToolsOfTwoPorts(t *testing.T) {
	second := loopback.Addr(6)
	for args, want := range map[string]string{
		"ibstatus vrb_test":      "(?s)^Infiniband device 'vrb_test' port 1 status:.*'vrb_test' port 2 status:[^']*$",
		"ibstatus vrb_test:2":    "(?s)^Infiniband device 'vrb_test' port 2 status:[^']*$",
		"show_gids vrb_test:2":   "(?s)^[^:]*\nvrb_test\t2\t.*" + second + ".*\nn_gids_found=2\n$",
		"ibstat vrb_test":        "(?s)Number of ports: 2\n.*\tPort 1:\n.*\tPort 2:\n",
		"rdma link show":         "^link vrb_test/1 state ACTIVE .*\nlink vrb_test/2 state ACTIVE .* netdev \\S+ \n$",
		"rdma link s vrb_test/2": "^link vrb_test/2 state ACTIVE physical_state LINK_UP netdev \\S+ \n$",
		"doctor": "device vrb_test port 1: its port works.*" + ownAddr + "\n(?s:.*)" +
			"device vrb_test port 2: its port works.*" + second + "\n",
	} {
		words := strings.Fields(args)
		if words[0] == "rdma" || words[0] == "doctor" {
			words = append([]string{"verbena"}, words...)
		}
		cmd, out, errs := start(t, ownAddr+"/"+second, words[0], words[1:]...)
		_ = cmd.Wait()
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s: %q, %s", args, out, errs)
		}
	}
}

// ibping measures the answers of a host's connection manager, here of this host's own.
func TestIBPing(t *testing.T) {
	out, errs, status := output(t, "ibping", "-f", "-c", "3", ownAddr)
	pong := regexp.MustCompile(`(?m)^Pong from ` + ownAddr + `: time [0-9.]+ ms$`)
	if status != 0 || len(pong.FindAllString(out, -1)) != 3 ||
		!strings.Contains(out, "3 requests sent, 3 answered, 0% lost\nrtt min/avg/max = ") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if out, _, status := output(t, "ibping", "-c", "1", "-t", "200", loopback.Addr(99)); status != 1 ||
		!strings.Contains(out, "1 requests sent, 0 answered, 100% lost") {
		t.Errorf("status %d: %s", status, out)
	}
}

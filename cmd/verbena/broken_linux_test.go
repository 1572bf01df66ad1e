package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/apart"
)

// A broken set-up: do breaks it, and mend undoes that.
type broken struct {
	name, do, mend string
	env            []string // of doctor, on host a
	peer           string   // 10.9.0.2 if empty; "-" for none
	want           []string // what doctor says
	not            string   // what it does not say
}

const (
	chain = "ip netns exec %s nft 'add table inet f; add chain inet f c { type filter hook %h priority 0; }; " +
		"add rule inet f c "
	flush = "ip netns exec %s nft flush ruleset"
)

// nft is a broken set-up whose host has a firewall rule.
func nft(name, host, hook, rule string, want ...string) broken {
	return broken{name: name, do: strings.NewReplacer("%s", host, "%h", hook).Replace(chain) + rule + "'",
		mend: strings.ReplaceAll(flush, "%s", host), want: want}
}

var brokenSetups = []broken{
	nft("firewall out here", "a", "output", "udp dport 4791 drop",
		`chain inet f c has the rule "udp dport 4791 drop"`, "this host's firewall rejects it"),
	nft("firewall in here", "a", "input", "udp dport 4791 drop",
		`chain inet f c has the rule "udp dport 4791 drop"`, "this host's own requests to it get no answer either"),
	nft("firewall that rejects there", "b", "input", "udp dport 4791 reject",
		"the host is up, but UDP port 4791 is closed there, or a firewall rejects it"),
	nft("firewall in there", "b", "input", "udp dport 4791 drop", "no answer to a connection request",
		"no firewall drops UDP port 4791"),
	nft("firewall out there", "b", "output", "udp dport 4791 drop", "no answer to a connection request",
		"no firewall drops UDP port 4791"),
	nft("long packets in there", "b", "input", "udp length > 1000 drop", "a firewall drops long ones"),
	nft("long packets out here", "a", "output", "udp length > 1000 drop", "this host's firewall rejects UDP packets of ",
		`"udp length > 1000 drop", which drops packets by their length`),
	nft("a rate limit here", "a", "input", "meta l4proto udp limit rate over 900000/second drop", "a rate limit"),
	{name: "MTU mismatch", do: "ip -n b link set v1b mtu 1500", mend: "ip -n b link set v1b mtu 9000",
		want: []string{"pings of 150", "bytes pass in both directions, longer ones do not", "-m 1024"}, not: "firewall"},
	// As an adapter that receives longer packets than its interface may send.
	{name: "smaller MTU of the way back", do: "ip -n b route change 10.9.0.0/24 dev v1b src 10.9.0.2 mtu 1500",
		mend: "ip -n b route change 10.9.0.0/24 dev v1b src 10.9.0.2",
		want: []string{"pings of 1500 bytes pass in both directions, longer ones do not", "-m 1024"}},
	{name: "smaller MTU of the way back, IPv6", peer: "fd09::2",
		do:   "ip -n b route change fd09::/64 dev v1b metric 256 mtu 1500",
		mend: "ip -n b route change fd09::/64 dev v1b metric 256",
		want: []string{"pings of 1500 bytes pass in both directions, longer ones do not", "-m 1024"}},
	{name: "black hole", peer: "10.7.0.2", want: []string{"pings of 1400 bytes pass in both directions, longer ones " +
		"do not", "on the way is 1400"}},
	{name: "no such host", peer: "10.9.0.77", want: []string{"no host answers at this address", "ip neigh"}},
	{name: "no route", peer: "192.0.2.9", want: []string{"no route", "ip route get 192.0.2.9"}},
	{name: "address of another VLAN", peer: "10.8.0.2", do: "ip -n a addr add 10.8.0.1/24 dev v1a",
		mend: "ip -n a addr del 10.8.0.1/24 dev v1a", want: []string{"no host answers at this address", "a VLAN"}},
	{name: "asymmetric route", env: []string{"VERBENA_DEVICES=x=10.8.0.1"}, do: "ip -n a addr add 10.8.0.1/24 dev v1a",
		mend: "ip -n a addr del 10.8.0.1/24 dev v1a", want: []string{"but the device sends from 10.8.0.1"}},
	{name: "a host without a program", do: "ip netns exec b true", peer: "10.7.0.1",
		want: []string{"UDP port 4791 is closed there"}},
	{name: "no shared memory", env: []string{"VERBENA_SHM=0"}, peer: "-", want: []string{"VERBENA_SHM=0",
		"processes of this host use UDP"}},
	{name: "faults", env: []string{"VERBENA_FAULT=loss=0.1"}, peer: "-", want: []string{"VERBENA_FAULT=loss=0.1"}},
	{name: "a wrong list of devices", env: []string{"VERBENA_DEVICES=nosuch0"}, peer: "-", want: []string{"nosuch0"}},
	{name: "interface down", do: "ip -n a link set v1a down", mend: "ip -n a link set v1a up; until ip -n a link " +
		"show v1a | grep -q 'state UP'; do sleep 0.1; done", env: []string{"VERBENA_DEVICES=v1a"},
		peer: "-", want: []string{"its port is", "ip link set dev v1a up"}},
}

// TestDoctorNamesBrokenSetups breaks two hosts in many ways, one after the other, and mends them again. Doctor names
// each.
func TestDoctorNamesBrokenSetups(t *testing.T) {
	onHosts(t, 9000, 9000, func(h *hosts) {
		// Behind router r the cable to host c carries 1400 bytes, and no ICMP message says so.
		h.host("r")
		h.host("c")
		h.cable("a", "r", 9000, 9000, "10.6.0.1/24", "10.6.0.2/24")
		h.cable("r", "c", 1400, 9000, "10.7.0.1/24", "10.7.0.2/24")
		h.sh("ip netns exec r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'")
		h.sh("ip netns exec r nft 'add table inet f; add chain inet f o { type filter hook output priority 0; }; " +
			"add rule inet f o icmp type destination-unreachable icmp code frag-needed drop'")
		h.sh("ip -n a route add 10.7.0.0/24 via 10.6.0.2; ip -n c route add default via 10.7.0.1")
		defer h.start("b", "rping", "-s", "-P", "-a", "10.9.0.2")()
		defer h.start("c", "rping", "-s", "-P", "-a", "10.7.0.2")()
		if out, status := h.run("a", "doctor", "10.9.0.2"); status != 0 || !strings.Contains(out, "No problem found.") {
			t.Fatalf("healthy hosts: status %d\n%s", status, out)
		}
		if out, status := h.run("a", "doctor", "localhost"); status != 0 {
			t.Errorf("localhost: status %d\n%s", status, out)
		}
		for _, c := range brokenSetups {
			if c.do != "" {
				h.sh("%s", c.do)
			}
			args := []string{"doctor", "10.9.0.2"}
			if c.peer == "-" {
				args = args[:1]
			} else if c.peer != "" {
				args[1] = c.peer
			}
			cmd, out := h.command("a", args...)
			cmd.Env = append(cmd.Env, c.env...)
			_ = cmd.Run()
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: doctor does not say %q:\n%s", c.name, want, out)
				}
			}
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("%s: doctor says %q:\n%s", c.name, c.not, out)
			}
			if c.mend != "" {
				h.sh("%s", c.mend)
			}
		}
		h.smallMTU()
		h.smallBuffers()
		h.brokenByKernel()
		h.brokenByProcesses()
	})
}

// smallMTU: the interface cannot send a connection request. A client says so at once. IPv6 needs 1280 bytes, so that
// its addresses are gone afterwards.
func (h *hosts) smallMTU() {
	h.Helper()
	h.sh("ip -n a link set v1a mtu 280")
	if out, status := h.run("a", "doctor"); status == 0 || !strings.Contains(out, "MTU of interface v1a is 280 bytes") {
		h.Errorf("small MTU: status %d\n%s", status, out)
	}
	const want = "the MTU of the route to 10.9.0.2 is 280 bytes: must be at least 308"
	if out, status := h.run("a", "rping", "-c", "-a", "10.9.0.2", "-C", "1"); status == 0 || !strings.Contains(out, want) {
		h.Errorf("rping over a small MTU: status %d\n%s", status, out)
	}
	h.iwarpPing()
	h.sh("ip -n a link set v1a mtu 9000")
}

// iwarpPing pings from host a to host b by iWARP.
func (h *hosts) iwarpPing() {
	h.Helper()
	server, said := h.command("b", "rping", "-s", "-C", "1")
	client, out := h.command("a", "rping", "-c", "-a", "10.9.0.2", "-C", "1")
	for _, cmd := range []*exec.Cmd{server, client} {
		cmd.Env = append(cmd.Env, "VERBENA_TRANSPORT=iwarp")
	}
	if err := server.Start(); err != nil {
		h.Fatal(err)
	}
	h.until("rping listens on an iWARP device of host b", func() bool { // one listens on the RoCE device already
		list, _ := h.run("b", "rdma", "resource", "show", "cm_id")
		return regexp.MustCompile(`(?m)^link vrw_.* state LISTEN `).MatchString(list)
	})
	if err := client.Run(); err != nil {
		h.Errorf("rping by iWARP: %v\n%s", err, out)
	}
	if err := server.Wait(); err != nil {
		h.Errorf("rping -s by iWARP: %v\n%s", err, said)
	}
}

// smallBuffers: the system's limit is the default of most distributions. Only a machine's first namespace can set it,
// so a file takes its place.
func (h *hosts) smallBuffers() {
	h.Helper()
	cmd, out := h.command("a")
	cmd.Args = append(cmd.Args[:4:4], "sh", "-c", "echo 212992 >/run/max && "+
		"mount --bind /run/max /proc/sys/net/core/rmem_max && exec "+h.exe+" doctor")
	h.says("small buffers", cmd, out, "net.core.rmem_max: 212992 bytes", "sysctl -w net.core.rmem_max=4194304")
}

// brokenByKernel: rdma_rxe is loaded. A tunnel stands for it: it too has a socket of the kernel at port 4791 of all
// addresses. The folder of the kernel's RDMA devices is made up, as doctor knows rxe0 by its file "parent".
func (h *hosts) brokenByKernel() {
	h.Helper()
	const tunnel = "ip -n a link add vx type vxlan id 1 dstport 4791 && ip -n a link set vx up"
	if out, err := exec.CommandContext(h.Context(), "sh", "-c", tunnel).CombinedOutput(); err != nil {
		h.Logf("rdma_rxe loaded: not tried: %s", out)
		return
	}
	defer h.sh("ip -n a link del vx")
	cmd, out := h.command("a")
	cmd.Args = append(cmd.Args[:4:4], "sh", "-c", "mkdir -p /run/class/net /run/class/infiniband/rxe0 && "+
		"echo v1a >/run/class/infiniband/rxe0/parent && mount --bind /sys/class/net /run/class/net && "+
		"mount --rbind /run/class /sys/class && exec "+h.exe+" doctor")
	h.says("rdma_rxe loaded", cmd, out, "the port is taken by rdma_rxe", "remove it (rdma link delete rxe0; modprobe -r",
		"device rxe0: is the kernel's soft-RoCE, on v1a")
}

// says runs doctor, which must name what is wrong.
func (h *hosts) says(what string, cmd *exec.Cmd, out fmt.Stringer, wants ...string) {
	h.Helper()
	_ = cmd.Run()
	for _, want := range wants {
		if !strings.Contains(out.String(), want) {
			h.Errorf("%s: doctor does not say %q:\n%s", what, want, out)
		}
	}
}

// brokenByProcesses are set-ups that another process breaks: the port taken, a stopped leader, too few descriptors.
func (h *hosts) brokenByProcesses() {
	h.Helper()
	few, out := h.command("a", "doctor")
	few.Args = append(few.Args[:4:4], "sh", "-c", "ulimit -n 14; exec "+h.exe+" doctor")
	h.says("few descriptors", few, out, "ulimit -n 1024")

	plain, _ := h.command("a", "rping", "-s", "-P", "-a", "10.9.0.1")
	plain.Env = append(plain.Env, "VERBENA_UDP=plain")
	if err := plain.Start(); err != nil {
		h.Fatal(err)
	}
	h.await("a", true)
	cmd, out := h.command("a", "doctor")
	h.says("port taken", cmd, out, "EADDRINUSE", "the port is taken by process")
	_ = plain.Process.Kill()
	_ = plain.Wait()

	leader, _ := h.begin("a", "rping", "-s", "-P", "-a", "10.9.0.1")
	apart.Stop(h.T, leader.Process)
	cmd, out = h.command("a", "doctor")
	h.says("stopped process", cmd, out, "ETIMEDOUT", "is it stopped?", "kill -CONT")
	_ = leader.Process.Kill()
	_ = leader.Wait()
	cmd, out = h.command("a", "doctor")
	h.says("dead leader", cmd, out, "device vrb_v1a: its port works", "No problem found.")

	if os.Getuid() != 0 {
		return
	}
	serve, _ := h.command("a", "serve", "--group", "daemon")
	if line, err := startToLine(h.T, serve); err != nil || !strings.Contains(line, " shared in ") {
		h.Fatalf("serve prints %q, %v", line, err)
	}
	h.sh("chmod 755 %s", strings.TrimSuffix(h.exe, "/verbena"))
	other, out := h.command("a", "doctor")
	other.Args = append(other.Args[:4:4], "setpriv", "--reuid=65000", "--regid=65000", "--clear-groups", h.exe, "doctor")
	h.says("wrong user", other, out, "EACCES", "usermod -aG daemon")
	stray, out := h.command("a", "doctor")
	stray.Env = append(stray.Env, "VERBENA_RUN=/run/other")
	h.says("another VERBENA_RUN", stray, out, "EADDRINUSE", "verbena serve in /run/verbena",
		"set VERBENA_RUN=/run/verbena")
	_ = serve.Process.Kill()
	_ = serve.Wait()
}

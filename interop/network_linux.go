package main

import (
	"fmt"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"time"
)

// setNetwork applies a network to guest 1's interface in each direction: netem on it for what it sends, and netem on an
// ifb device, to which its ingress is redirected, for what it receives. The interface is eth0 unless the network names
// eth1.
func (s *suite) setNetwork(n network) error {
	if s.network == n {
		return nil
	}
	const off = "for i in eth0 eth1; do tc qdisc del dev $i root 2>/dev/null; " +
		"tc qdisc del dev $i ingress 2>/dev/null; done; tc qdisc del dev ifb0 root 2>/dev/null; "
	line, dev, netem := off+"true", "eth0", string(n)
	if rest, ok := strings.CutPrefix(netem, "eth1 "); ok {
		dev, netem = "eth1", rest
	}
	if n != clean {
		line = off + fmt.Sprintf(`set -e; ip link set ifb0 mtu %s up
tc qdisc add dev %[2]s root netem limit 20000 %[3]s
tc qdisc add dev %[2]s ingress
tc filter add dev %[2]s ingress matchall action mirred egress redirect dev ifb0
tc qdisc add dev ifb0 root netem limit 20000 %[3]s`, setting("LAB_MTU", "9000"), dev, netem)
	}
	if _, err := s.lab.guest(1, line); err != nil {
		return err
	}
	s.network = n
	return nil
}

// counters are guest 1's RDMA counters.
type counters map[string]int64

// counters reads guest 1's RDMA counters. It returns none on failure; the case itself reports what is
// wrong.
func (s *suite) counters() counters {
	out, err := s.lab.guest(1, "rdma statistic show link rxe0/1")
	if err != nil {
		return nil
	}
	c := counters{}
	words := strings.Fields(out)
	for i := 0; i+1 < len(words); i++ {
		if n, err := strconv.ParseInt(words[i+1], 10, 64); err == nil {
			c[words[i]] = n
		}
	}
	return c
}

// troubles lists the counters that do not change on a clean network with correct ends.
var troubles = []string{"duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err", "rcvd_seq_err",
	"retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "send_err"}

// since returns the troubles that have grown since old.
func (c counters) since(old counters) string {
	var list []string
	for _, name := range troubles {
		if d := c[name] - old[name]; d > 0 {
			list = append(list, fmt.Sprintf("%s %d", name, d))
		}
	}
	sort.Strings(list)
	return strings.Join(list, ", ")
}

// startCapture records the RoCE packets at guest 1's port until stop is called.
func startCapture(l *lab, file string) (stop func(), err error) {
	return capturePort(l, "roce1", "udp port 4791", file)
}

// captureStreams records the iWARP streams at guest 1's port until stop is called.
func captureStreams(l *lab, file string) (stop func(), err error) {
	return capturePort(l, "ctl1", "tcp and not port 22", file)
}

// capturePort records the packets at a port of the lab that a filter selects.
func capturePort(l *lab, port, filter, file string) (stop func(), err error) {
	cmd := l.script(1, "host", "tcpdump", "-i", port, "-U", "--immediate-mode", "-B", "65536", "-Z", "root", "-w", file,
		filter)
	p, err := start("tcpdump", cmd)
	if err != nil {
		return nil, err
	}
	for i := 0; !strings.Contains(p.Out.String(), "listening"); i++ {
		if p.Ended() || i > 500 {
			p.Stop()
			return nil, fmt.Errorf("tcpdump: %s", p.Out)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() {
		if !p.Ended() {
			time.Sleep(300 * time.Millisecond)
			p.Stop()
		}
	}, nil
}

// haveTshark installs Debian's tshark if it is missing.
func haveTshark() error {
	if _, err := exec.LookPath("tshark"); err == nil {
		return nil
	}
	cmd := exec.Command("apt-get", "-qq", "-y", "-o", "APT::Install-Recommends=0", "install", "tshark")
	cmd.Env = append(cmd.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if _, err := runCmd(cmd, 5*time.Minute); err != nil {
		return fmt.Errorf("tshark is missing and cannot be installed: %w", err)
	}
	return nil
}

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// iwarpEnd is how the programs of one end use iWARP.
type iwarpEnd struct {
	crc bool // ask for CRCs
	p2p bool // as a client, ask for peer-to-peer mode

	pcap string // the file of our own capture
}

func (e iwarpEnd) String() string {
	text := ""
	if e.crc {
		text = "crc"
	}
	if e.p2p {
		text += "p2p"
	}
	if text == "" {
		return "plain"
	}
	return text
}

// Networks of which the guest's iWARP interface loses packets, or delays them too, in each direction.
const (
	lossyIWARP   network = "eth1 loss 1%"
	distantIWARP network = "eth1 loss 1% delay 5ms 1ms"
)

// siwCases returns the cases between our iWARP devices and the guest's siw0.
func siwCases() (all []testCase) {
	usual := iwarpEnd{p2p: true}
	add := func(r cmRun, ours, siw iwarpEnd) {
		name := "siw/" + r.name + "/" + familyName(r.family)
		if ours != usual || siw != (iwarpEnd{}) {
			name += fmt.Sprintf("/ours %v, siw %v", ours, siw)
		}
		if r.timeout == 0 {
			r.timeout = 2 * time.Minute
		}
		all = append(all, testCase{name: name, timeout: r.timeout, network: r.network, run: r.overIWARP(ours, siw)})
	}
	for _, family := range []int{4, 6} {
		for _, r := range siwRuns() {
			r.family = family
			add(r, usual, iwarpEnd{})
		}
		for _, victim := range []string{"active", "passive"} {
			k := killed{family: family, state: "ESTABLISHED", victim: victim, bring: (*killing).toEstablished, tells: true}
			all = append(all, testCase{name: "siw/killed in ESTABLISHED/" + victim + "/" + familyName(family),
				timeout: 4 * time.Minute, run: onIWARP(usual, iwarpEnd{}, k.run)})
		}
	}
	for _, r := range siwShort() {
		r.family = 4
		for n := 1; n < 16; n++ {
			ours, siw := iwarpEnd{crc: n&1 != 0, p2p: n&2 == 0}, iwarpEnd{crc: n&4 != 0, p2p: n&8 != 0}
			add(r, ours, siw)
		}
		name := r.name
		r.timeout = 5 * time.Minute
		for title, n := range map[string]network{"loss 1%": lossyIWARP, "loss 1%, 5 ms": distantIWARP} {
			r.name, r.network = title+"/"+name, n
			add(r, usual, iwarpEnd{})
			add(r, iwarpEnd{crc: true, p2p: true}, iwarpEnd{})
		}
	}
	for _, tool := range strings.Fields("send_bw write_bw read_bw send_lat write_lat read_lat") {
		for _, args := range []string{"-R -n 100", "-R -n 20 -s 1000000", "-R -n 10 -a"} {
			p := perftest{tool: tool, args: args, family: 4, siw: true}
			all = append(all, testCase{name: "siw/perftest/ib_" + tool + "/" + args, timeout: 3 * time.Minute,
				run: onIWARP(usual, iwarpEnd{}, p.run)})
		}
	}
	return append(all, testCase{name: "siw/capture", timeout: 4 * time.Minute, oneWay: true, run: siwCaptured})
}

// siwShort are the programs that run with every setting of both ends. The server of ucmatose sends first.
func siwShort() []cmRun {
	const success = `return status 0`
	return []cmRun{
		{name: "rping/-C 50 -S 4096", server: "rping -s -a ADDR -S 4096 -V", client: "rping -c -a ADDR -C 50 -S 4096 -V -v",
			clientSays: `ping data: rdma-ping-49: `},
		{name: "ucmatose", server: "ucmatose -b ADDR", client: "ucmatose -s ADDR", serverSays: success, clientSays: success},
		{name: "rstream/-S 4096 -C 50 -T v", server: "rstream -b ADDR -S 4096 -C 50 -T v",
			client: "rstream -s ADDR -S 4096 -C 50 -T v", serverSays: `(?m)^custom .*\d$`, clientSays: `(?m)^custom .*\d$`},
	}
}

// siwRuns are the programs that run with the usual settings, over IPv4 and IPv6.
func siwRuns() (runs []cmRun) {
	const success = `return status 0`
	for _, size := range []int{64, 65535} {
		runs = append(runs, cmRun{name: fmt.Sprintf("rping/-C 1000 -S %d", size), timeout: 4 * time.Minute,
			server:     fmt.Sprintf("rping -s -a ADDR -S %d -V", size),
			client:     fmt.Sprintf("rping -c -a ADDR -C 1000 -S %d -V -v", size),
			clientSays: `ping data: rdma-ping-999: `})
	}
	runs = append(runs, cmRun{name: "rping/-P, 6 clients", clients: 6, server: "rping -s -P -a ADDR",
		client: "rping -c -a ADDR -C 300 -V -v", persistent: true, tidy: true,
		clientSays: `ping data: rdma-ping-299: `})
	for _, args := range []string{"", "-c 20", "-c 10 -C 20 -S 5000"} {
		runs = append(runs, cmRun{name: strings.TrimSuffix("ucmatose/"+args, "/"), server: "ucmatose -b ADDR " + args,
			client: "ucmatose -s ADDR " + args, serverSays: success, clientSays: success})
	}
	runs = append(runs,
		cmRun{name: "rdma_client", server: "rdma_server -s ADDR", client: "rdma_client -s ADDR", serverSays: `end 0`,
			clientSays: `end 0`},
		cmRun{name: "refused/port", server: "rping -s -P -a ADDR -p 999", client: "ucmatose -s ADDR", fails: true,
			persistent: true, clientSays: `RDMA_CM_EVENT_REJECTED, error: -111|failure connecting: Connection refused`})
	stream := func(tool, args string) {
		runs = append(runs, cmRun{name: tool + "/" + args, timeout: 4 * time.Minute,
			server: tool + " -b ADDR " + args, client: tool + " -s ADDR " + args,
			serverSays: `(?m)^(custom|1m_bw) .*\d$`, clientSays: `(?m)^(custom|1m_bw) .*\d$`})
	}
	for _, t := range []string{"", " -T b -T v", " -T n", " -T a -T v", " -T r"} {
		stream("rstream", "-S 4096 -C 100"+t)
	}
	for _, size := range []int{1, 65, 20000, 1 << 20} {
		stream("rstream", fmt.Sprintf("-S %d -C 10 -T b -T v", size))
	}
	stream("rstream", "-S 1000 -C 5000 -T b -T v")
	for _, size := range []int{64, 4096, 1 << 20} {
		stream("riostream", fmt.Sprintf("-S %d -C 10 -T b -T v", size))
	}
	return runs
}

// overIWARP returns the case of a run with the settings of both ends.
func (r cmRun) overIWARP(ours, siw iwarpEnd) func(*caseEnv, *place, *place) error {
	return onIWARP(ours, siw, r.run)
}

// onIWARP makes both ends of a case use iWARP.
func onIWARP(ours, siw iwarpEnd, run func(*caseEnv, *place, *place) error) func(*caseEnv, *place, *place) error {
	return func(env *caseEnv, active, passive *place) error {
		a, p := active.iwarp(ours), passive.iwarp(ours)
		for _, at := range []*place{a, p} {
			if at.ours() {
				continue
			}
			line := fmt.Sprintf("cd /sys/module/siw/parameters && echo %s >mpa_crc_required && echo %s >peer_to_peer",
				digit(siw.crc), digit(siw.p2p))
			if _, err := env.lab.guest(at.id, line); err != nil {
				return err
			}
		}
		return run(env, a, p)
	}
}

func digit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// iwarp returns the same end with its iWARP device and addresses.
func (p *place) iwarp(e iwarpEnd) *place {
	c := *p
	c.siw = true
	c.ip4 = fmt.Sprintf("%s.%d", setting("LAB_CTL4", "192.168.78"), p.id+1)
	c.ip6 = fmt.Sprintf("%s:%x", setting("LAB_CTL6", "fd78:"), p.id+1)
	c.env = []string{"VERBENA_DEVICES=ctl", "VERBENA_TRANSPORT=iwarp", "VERBENA_IWARP_CRC=" + digit(e.crc),
		"VERBENA_IWARP_P2P=" + digit(e.p2p), "VERBENA_PCAP=" + e.pcap}
	return &c
}

// siwCaptured records sessions in both directions with the settings that change the stream, on the wire and by our
// programs. tshark must dissect the segments, and find none malformed.
func siwCaptured(env *caseEnv, x, y *place) error {
	if err := haveTshark(); err != nil {
		return err
	}
	file := filepath.Join(env.logDir, env.logName+".pcap")
	stop, err := captureStreams(env.lab, file)
	if err != nil {
		return err
	}
	defer stop()
	var own []string
	for _, ours := range []iwarpEnd{{p2p: true}, {}, {crc: true}} {
		for _, r := range siwShort() {
			r.family = 4
			for _, d := range [][2]*place{{x, y}, {y, x}} {
				ours.pcap = filepath.Join(env.logDir, fmt.Sprintf("%s.own%d.pcapng", env.logName, len(own)))
				own = append(own, ours.pcap)
				if err := r.overIWARP(ours, iwarpEnd{p2p: ours.p2p})(env, d[0], d[1]); err != nil {
					return fmt.Errorf("%s, %s > %s: %w", r.name, d[0].name, d[1].name, err)
				}
			}
		}
	}
	stop()
	for _, f := range own {
		if err := judgeIWARP(env, f, 1, 7); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	env.note = fmt.Sprintf("%d own captures; ", len(own))
	return judgeIWARP(env, file, 18, 500)
}

// judgeIWARP has tshark dissect a capture of iWARP, with a least number of connections and segments. A packet of TCP
// may hold several segments.
func judgeIWARP(env *caseEnv, file string, connections, segments int) error {
	for field, least := range map[string]int{"iwarp_mpa.req": connections, "iwarp_mpa.rep": connections,
		"iwarp_ddp.last_flag": segments, "iwarp_rdma.opcode": segments} {
		text, err := dissectIWARP(file, field, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-e", field)
		if err != nil {
			return err
		}
		n := len(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' }))
		if n < least {
			return fmt.Errorf("tshark: %d times %q, want at least %d", n, field, least)
		}
		env.note += fmt.Sprintf("%s %d; ", field, n)
	}
	text, err := dissectIWARP(file, "_ws.malformed || iwarp_mpa.bad_length")
	if n := strings.Count(text, "\n"); err == nil && n > 0 {
		err = fmt.Errorf("tshark: %d bad packets\n%s", n, proc.Tail(text, 5))
	}
	return err
}

// dissectIWARP returns what tshark prints of the packets of a file that match a filter. tshark tries iWARP before the
// protocols of known ports, since that of a client may be one of these.
func dissectIWARP(file, filter string, args ...string) (string, error) {
	out := &proc.Output{}
	cmd := exec.Command("tshark", append([]string{"-n", "-o", "tcp.try_heuristic_first:TRUE", "-r", file, "-Y",
		filter}, args...)...)
	for _, guess := range []string{"rpcordma", "iser", "nvme-rdma", "smb_direct"} {
		cmd.Args = append(cmd.Args, "--disable-protocol", guess)
	}
	cmd.Stdout = out
	_, err := runCmd(cmd, 2*time.Minute)
	return out.String(), err
}

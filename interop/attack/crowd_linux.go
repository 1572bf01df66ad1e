package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// hold starts a program that has the server's address, and returns its QPN slot.
func (p *place) hold(env ...string) (g *program, slot int, err error) {
	cmd := p.command("", "role", "hold")
	cmd.Env = append(append(os.Environ(), "VERBENA_DEVICES=a=127.0.0.1"), env...)
	if g, err = p.start(cmd); err != nil {
		return nil, 0, err
	}
	if err = g.Until("hello\n", 20*time.Second); err != nil {
		return nil, 0, err
	}
	slot, err = g.slot()
	return g, slot, err
}

// slot returns the slot of the QPN that the program has printed.
func (g *program) slot() (int, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(g.Out.String(), "QPN "), "\n")
	qpn, err := strconv.ParseUint(text, 0, 24)
	return int(qpn >> 16), err
}

// stoppedMember stops a program that shares the address of the server, and sends it datagrams.
func stoppedMember(p *place) (string, error) {
	if _, _, err := p.hold(); err != nil { // leads
		return "", err
	}
	member, slot, err := p.hold()
	if err != nil {
		return "", err
	}
	before, err := p.listener()
	if err != nil {
		return "", err
	}
	if err := member.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	list, err := strangers(1)
	if err != nil {
		return "", err
	}
	data := &wire.Fields{Opcode: wire.RC | wire.SendOnly, PKey: 0xffff, DestQPN: uint32(slot)<<16 | 0x20}
	after, _, err := p.duringFlood(1000, []packet{list[0].disconnect(slot), list[0].packet(data)})
	figures := fmt.Sprintf("%d connects in 3 s before, %d during the flood", before, after)
	if err == nil && after*2 < before {
		err = fmt.Errorf("fewer than one in 2")
	}
	return figures, err
}

// flood returns a case: an attacker sends packets from many hosts at 100,000 per second. An equal flood of an address
// that no program of the case uses is the control: attacker, server and client share the processors. At least half of
// the connects remain.
func flood(packets func(p *place, list []*stranger) ([]packet, error)) func(*place) (string, error) {
	return floodLeaving(packets, "half", func(control, here int) bool { return here*2 >= control })
}

// floodOfMember is flood with a server that does not lead at its address. The process that leads receives the packets,
// so that four processes share the processors, and an honest request is handled by two of them. At least a quarter of
// the connects remain.
func floodOfMember(packets func(p *place, list []*stranger) ([]packet, error)) func(*place) (string, error) {
	run := floodLeaving(packets, "a quarter", func(control, here int) bool { return here*4 >= control })
	return func(p *place) (string, error) {
		if _, _, err := p.hold(); err != nil {
			return "", err
		}
		return run(p)
	}
}

// lookupFlood is a flood of look-ups of a datagram service, whose sources the server cannot know: an honest client must
// repeat its own. At least one in three seconds succeeds; a client waited up to 13 s before they were limited.
func lookupFlood(p *place) (string, error) {
	if err := os.Setenv(datagrams, "1"); err != nil {
		return "", err
	}
	defer os.Unsetenv(datagrams)
	return floodLeaving(lookups, "one in 3 s", func(_, here int) bool { return here >= floodPairs })(p)
}

// floodLeaving is flood with another condition for the connects during the floods of the control and of the server.
func floodLeaving(packets func(p *place, list []*stranger) ([]packet, error), least string,
	enough func(control, here int) bool) func(*place) (string, error) {
	return func(p *place) (string, error) {
		before, err := p.listener()
		if err != nil {
			return "", err
		}
		list, err := strangers(200)
		if err != nil {
			return "", err
		}
		all, err := packets(p, list)
		if err != nil {
			return "", err
		}
		figures, control, here, err := p.compareFloods(before, all)
		if err == nil && !enough(control, here) {
			err = fmt.Errorf("fewer than %s", least)
		}
		return figures, err
	}
}

const (
	floodRate  = 100000
	floodPairs = 3
)

// compareFloods sends packets in turn to an unrelated address and to the server. It returns the connects of the honest
// client during the floods of each.
func (p *place) compareFloods(before int, packets []packet) (figures string, control, here int, err error) {
	unread, err := net.ListenPacket("udp4", netip.AddrPortFrom(unrelated, wire.Port).String())
	if err != nil {
		return "", 0, 0, err
	}
	defer unread.Close()
	elsewhere := slices.Clone(packets)
	for i := range elsewhere {
		elsewhere[i].to = unrelated
	}
	total, sent := [2]int{}, [2]int{}
	for range floodPairs {
		for i, list := range [][]packet{elsewhere, packets} {
			n, rate, err := p.duringFlood(floodRate, list)
			if err != nil {
				return "", 0, 0, err
			}
			total[i] += n
			sent[i] += rate
		}
	}
	perSecond := func(n int) float64 { return float64(n) / 3 / floodPairs }
	figures = fmt.Sprintf("%d connects/s; %.3g/s during %d packets/s to another address, %.3g/s during %d packets/s here",
		before/3, perSecond(total[0]), sent[0]/floodPairs, perSecond(total[1]), sent[1]/floodPairs)
	if sent[1] < floodRate*floodPairs/2 {
		err = fmt.Errorf("%w: this machine sends less than half of %d packets per second: %s", errCannot, floodRate, figures)
	}
	return figures, total[0], total[1], err
}

// duringFlood sends packets in turn for 5 s. It returns the connections of the honest client in 3 s of these, and the
// packets that were sent per second.
func (p *place) duringFlood(rate int, packets []packet) (connects, perSecond int, err error) {
	const most = 5 * time.Second
	sent := make(chan int)
	go func() { sent <- paced(rate, most, func(i int) { packets[i%len(packets)].send() }) }()
	time.Sleep(time.Second)
	connects, err = p.connects(3)
	return connects, <-sent / int(most.Seconds()), err
}

func multicastQPN(_ *place, list []*stranger) ([]packet, error) {
	return []packet{list[0].packet(&wire.Fields{
		Opcode: wire.UD | wire.SendOnly, PKey: 0xffff, DestQPN: wire.MulticastQPN, QKey: 1, SrcQPN: 1,
		Payload: make([]byte, 4),
	})}, nil
}

func unusedPort(_ *place, list []*stranger) (all []packet, err error) {
	for i, s := range list {
		all = append(all, s.request(listenPort+1, uint32(i)))
	}
	return all, nil
}

// usedPort returns requests for the listener's port. Each is of another node, as forged ones are.
func usedPort(_ *place, list []*stranger) (all []packet, err error) {
	for n := range uint32(100000) {
		all = append(all, list[int(n)%len(list)].requestOf(uint64(n)<<32|0x5a5a5a5a, listenPort, n))
	}
	return all, nil
}

// lookups returns look-ups of the service: so many that none is sent again soon, since that is what the server takes
// for the sign of an honest client.
func lookups(_ *place, list []*stranger) (all []packet, err error) {
	for n := range uint32(300000) {
		all = append(all, list[int(n)%len(list)].lookup(listenPort, n))
	}
	return all, nil
}

// disconnects are DREQs for the slot of the server, with IDs that it does not have.
func disconnects(p *place, list []*stranger) ([]packet, error) {
	slot, err := p.started[0].slot() // the server was started first
	return []packet{list[0].disconnect(slot)}, err
}

// descriptors counts the descriptors of a program with one address, and of the one that leads there: it has two more,
// for the other program and for the socket of strays.
func descriptors(p *place) (string, error) {
	const most = 40
	var figures []string
	bad := false
	for _, procs := range []string{"2", "16"} {
		var programs [2]*program
		for i := range programs {
			g, _, err := p.hold("GOMAXPROCS=" + procs)
			if err != nil {
				return "", err
			}
			programs[i] = g
		}
		for i, what := range []string{"the leader", "another"} {
			list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", programs[i].Cmd.Process.Pid))
			if err != nil {
				return "", err
			}
			figures = append(figures, fmt.Sprintf("%s has %d with GOMAXPROCS=%s", what, len(list), procs))
			bad = bad || len(list) > most+2*(1-i)
		}
		programs[0].Kill()
		programs[1].Kill()
	}
	text := strings.Join(figures, ", ")
	if bad {
		return text, fmt.Errorf("more than %d, or %d of the leader", most, most+2)
	}
	return text, nil
}

// otherUser has another user connect and write to the abstract sockets of the programs.
func otherUser(p *place) (string, error) {
	if os.Getenv(oneUser) != "" {
		return "", fmt.Errorf("%w: it needs root, for several users", errCannot)
	}
	if _, _, err := p.hold(); err != nil { // leads
		return "", err
	}
	before, err := p.listener()
	if err != nil {
		return "", err
	}
	tool, err := p.tool()
	if err != nil {
		return "", err
	}
	attacker := p.as(other, tool, "role", "pester")
	time.Sleep(time.Second)
	figures, err := p.judge(before, 2, "during the attack")
	<-attacker.Done
	_, counts, ok := strings.Cut(attacker.Out.String(), "pestered: ")
	if !ok && err == nil {
		err = fmt.Errorf("the attacker did not run: %s", proc.FirstLine(attacker.Out.String()))
	}
	return figures + "; " + strings.TrimSpace(counts), err
}

// tool copies this program to where other users can run it.
func (p *place) tool() (string, error) {
	tool := filepath.Join(p.dir, "attack")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(tool, b, 0o755) //nolint:gosec // other users run it
	}
	return tool, err
}

// pester connects and writes to all abstract sockets of programs, 2,000 times a second for 6 s, and leaves the last
// 100 connections open.
func pester() error {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 && strings.HasPrefix(f[7], "@verbena") {
			names[f[7]] = true
		}
	}
	var targets []string
	for name := range names {
		targets = append(targets, name)
	}
	if len(targets) == 0 {
		return fmt.Errorf("no abstract socket in /proc/net/unix")
	}
	var open [100]net.Conn
	connected, written := 0, 0
	data := make([]byte, 8000)
	kinds := []string{"unixpacket", "unix", "unixgram"}
	n := paced(2000, 6*time.Second, func(i int) {
		d := net.Dialer{Timeout: 10 * time.Millisecond}
		c, err := d.DialContext(ctx, kinds[i%len(kinds)], targets[i/len(kinds)%len(targets)])
		if err != nil {
			return
		}
		connected++
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Write(data); err == nil {
			written++
		}
		if old := open[connected%len(open)]; old != nil {
			_ = old.Close()
		}
		open[connected%len(open)] = c
	})
	fmt.Printf("pestered: %d attempts at %d sockets, %d connections, %d writes\n", n, len(targets), connected, written)
	return nil
}

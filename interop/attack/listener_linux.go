package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/interop/internal/proc"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

var ctx = context.Background()

const (
	listenAt   = "127.0.0.1:7471"
	listenPort = 7471
)

var (
	victim    = netip.MustParseAddr("127.0.0.1")
	unrelated = netip.MustParseAddr("127.0.0.3")
)

// role runs a part of a case that is a process of this program.
func role(name string, args []string) int {
	err := fmt.Errorf("unknown role %q", name)
	switch name {
	case "hello":
		err = hello()
	case "hold":
		if err = hello(); err == nil {
			select {}
		}
	case "listen":
		err = listen()
	case "connect":
		err = connect(args[0])
	case "refused":
		err = refusedRole(args)
	case "squat":
		err = squat()
	case "pester":
		err = pester()
	case "knock":
		err = knock(args)
	case "older":
		err = older(args)
	case "give":
		err = give(args)
	case "plant":
		err = plant(args)
	}
	if err != nil {
		fmt.Println("attack:", err)
		return 1
	}
	return 0
}

// datagrams is set in the environment of the roles listen and connect if the service is one of datagrams: the client
// looks it up, and there are no connections.
const datagrams = "ATTACK_DATAGRAMS"

// options returns the options of both ends.
func options() *rdmacm.Options {
	if os.Getenv(datagrams) != "" {
		return &rdmacm.Options{PortSpace: rdmacm.PSUDP}
	}
	return nil
}

// listen accepts connections until it is killed.
func listen() error {
	if err := hello(); err != nil { // prints the slot
		return err
	}
	l, err := rdmacm.Listen(ctx, listenAt, options())
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		id, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		time.AfterFunc(300*time.Millisecond, func() { _ = id.Close() })
	}
}

// connect connects repeatedly for some seconds and prints the number of connections.
func connect(seconds string) error {
	s, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	n := 0
	for end := time.Now().Add(time.Duration(s) * time.Second); time.Now().Before(end); {
		c, cancel := context.WithTimeout(ctx, time.Until(end))
		if id, err := rdmacm.Dial(c, listenAt, options()); err == nil {
			n++
			_ = id.Close()
		}
		cancel()
	}
	fmt.Println("connects:", n)
	return nil
}

// connects returns the number of connections of an honest client in some seconds.
func (p *place) connects(seconds int) (int, error) {
	cmd := p.command("", "role", "connect", strconv.Itoa(seconds))
	cmd.Env = append(os.Environ(), "VERBENA_DEVICES=b=127.0.0.2")
	out, _, err := p.finish(time.Duration(seconds+20)*time.Second, cmd)
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(out, "connects: ")
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("the client printed %s", proc.FirstLine(out))
	}
	return n, nil
}

// listener starts a server and returns the number of connections of an honest client in 3 s.
func (p *place) listener() (before int, err error) {
	cmd := p.command("", "role", "listen")
	cmd.Env = append(os.Environ(), "VERBENA_DEVICES=a=127.0.0.1")
	g, err := p.start(cmd)
	if err != nil {
		return 0, err
	}
	if err := g.Until("listening", 10*time.Second); err != nil {
		return 0, err
	}
	return p.connects(3)
}

// strangers returns n hosts, each with its own address.
func strangers(n int) (list []*stranger, err error) {
	for i := range n {
		s, err := newStranger(netip.AddrFrom4([4]byte{127, 9, byte(i >> 8), byte(i)}), victim)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// judge compares the number of connections after or during an attack with that before.
func (p *place) judge(before, least int, what string) (string, error) {
	after, err := p.connects(3)
	figures := fmt.Sprintf("%d connects in 3 s before, %d %s", before, after, what)
	if err == nil && after*least < before {
		err = fmt.Errorf("fewer than one in %d", least)
	}
	return figures, err
}

func halfOpen(p *place) (string, error) {
	before, err := p.listener()
	if err != nil {
		return "", err
	}
	list, err := strangers(200)
	if err != nil {
		return "", err
	}
	paced(4000, time.Second, func(i int) { list[i%len(list)].request(listenPort, uint32(i)).send() })
	time.Sleep(12 * time.Second) // handshakes end after 10 s
	return p.judge(before, 3, "12 s after 4,000 half-open ones")
}

func requests(p *place) (string, error) {
	before, err := p.listener()
	if err != nil {
		return "", err
	}
	list, err := strangers(200)
	if err != nil {
		return "", err
	}
	sent := make(chan int)
	go func() {
		sent <- paced(10000, 6*time.Second, func(i int) { list[i%len(list)].request(listenPort, uint32(i)).send() })
	}()
	time.Sleep(time.Second)
	figures, err := p.judge(before, 20, "during the flood")
	return fmt.Sprintf("%s of %d requests", figures, <-sent), err
}

// unowned sends packets to QPNs of all slots and measures the memory of the system's UDP sockets.
func unowned(p *place) (string, error) {
	if _, err := p.listener(); err != nil {
		return "", err
	}
	list, err := strangers(1)
	if err != nil {
		return "", err
	}
	f := &wire.Fields{Opcode: wire.RC | wire.SendOnly, PKey: 0xffff, Payload: make([]byte, 4096)}
	most := 0
	n := paced(40000, 6*time.Second, func(i int) {
		f.DestQPN = uint32(i%256)<<16 | 0x20
		list[0].packet(f).send()
		if i%1000 == 0 {
			most = max(most, udpMemory())
		}
	})
	time.Sleep(time.Second)
	left := udpMemory()
	figures := fmt.Sprintf("%d packets; UDP memory %d MiB at most, %d MiB a second later", n, most>>20, left>>20)
	if left > 128<<20 {
		return figures, fmt.Errorf("more than 128 MiB stay")
	}
	return figures, nil
}

// udpMemory returns the memory of the kernel for UDP sockets, in bytes.
func udpMemory() int {
	b, _ := os.ReadFile("/proc/net/sockstat")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 5 && f[0] == "UDP:" {
			n, _ := strconv.Atoi(f[4])
			return n * os.Getpagesize()
		}
	}
	return 0
}

package pingpong

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// A game is one run of one of the programs.
type game struct {
	*variant
	*options
	env *tool.Env

	table
	local, remote []exchange.Dest // one for each QP; with an SRQ always maxQP, the rest empty
}

func (v *variant) run(env *tool.Env, args []string) int {
	o, status, ok := v.parse(env, args)
	if !ok {
		return status
	}
	g := &game{variant: v, options: o, env: env}
	dests := 1
	if v.srq {
		dests = maxQP
	}
	g.local, g.remote = make([]exchange.Dest, dests), make([]exchange.Dest, dests)
	if err := g.play(); err != nil {
		return env.Failf("%v", err)
	}
	return 0
}

// play runs the program.
func (g *game) play() error {
	defer g.close()
	if err := g.meet(); err != nil {
		return err
	}
	took, err := g.rally()
	if err != nil {
		return err
	}
	report(g.env.Stdout, g.size, g.iters, took)
	g.times.report(g.env.Stdout)
	bad := g.verify()
	if g.typ == verbs.QPTypeRC {
		g.linger()
	}
	return errors.Join(bad, g.close())
}

// linger waits for the peer's retransmissions: if our acknowledgement of its last message is lost, the peer
// retransmits the message and fails without an answer.
func (g *game) linger() { time.Sleep(3 * verbs.AckTimeout(ackTimeout)) }

// verify checks the received data at the server (-c).
func (g *game) verify() error {
	if !g.validate || g.server != "" {
		return nil
	}
	payload, err := g.payload()
	if err != nil {
		return err
	}
	pages := invalid(payload)
	for _, p := range pages {
		fmt.Fprintf(g.env.Stdout, "invalid data in page %d\n", p)
	}
	if pages != nil {
		return fmt.Errorf("%d pages hold invalid data", len(pages))
	}
	return nil
}

// meet connects to the peer and prepares both ends.
//
// The C programs create their QPs before they exchange addresses. This program does so too if the options
// name device and GID; otherwise it needs the peer's address first.
func (g *game) meet() error {
	named := g.device != "" && g.gidIndex >= 0
	switch {
	case named:
		if err := g.setUp(netip.Addr{}); err != nil {
			return err
		}
	case g.device != "":
		if err := g.open(netip.Addr{}); err != nil {
			return err
		}
	default:
		if err := nearest.Check("", g.port, g.gidIndex, otherDevice); err != nil {
			return err
		}
	}
	if g.server != "" {
		return g.meetServer(named)
	}
	return g.meetClient(named)
}

func (g *game) meetServer(ready bool) error {
	conn, err := exchange.Dial(g.server, g.tcpPort)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !ready {
		if err := g.setUp(conn.Peer()); err != nil {
			return err
		}
	}
	if err := conn.Send(g.local); err != nil {
		return err
	}
	if err := conn.Recv(g.remote); err != nil {
		return err
	}
	if err := conn.SendDone(); err != nil {
		return err
	}
	g.printRemote()
	return g.connect()
}

func (g *game) meetClient(ready bool) error {
	l, err := exchange.Listen(g.tcpPort)
	if err != nil {
		return err
	}
	if !ready {
		fmt.Fprintf(g.env.Stderr, "waiting for a client on TCP port %d; its address chooses device and GID\n", l.Port())
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Recv(g.remote); err != nil {
		return err
	}
	if !ready {
		peer := conn.Peer()
		if gid := verbs.GID(g.remote[0].GID); !gid.IsZero() {
			peer = gid.Addr()
		}
		if err := g.setUp(peer); err != nil {
			return err
		}
	}
	if err := g.connect(); err != nil {
		return err
	}
	if err := conn.Send(g.local); err != nil {
		return err
	}
	if err := conn.WaitDone(); err != nil {
		return err
	}
	g.printRemote()
	return nil
}

func (g *game) printRemote() {
	for _, d := range g.remote[:g.numQP] {
		fmt.Fprintf(g.env.Stdout, remoteFormat, d.LID, d.QPN, d.PSN, verbs.GID(d.GID))
	}
}

package pingpong

import (
	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// ibv_xsrq_pingpong: a server and any number of clients over XRC. Each end has one SRQ. The server has an
// XRC_SEND and an XRC_RECV QP for each client, each client has one of both.
//
// The C server sends the messages for a client through the QPs of all its clients in turn. That works if the clients
// are processes of one host that share an XRC domain through a file, so clients use the file of the C program. This
// server sends the messages for a client through the client's own QPs, which works for clients of any hosts.

var xsrqVariant = &variant{
	name: "ibv_xsrq_pingpong", short: "ping-pong over XRC with a shared receive queue", typ: verbs.QPTypeXRCSend,
	bytes: 4096,
}

const xsrqFormat = "%8s: LID %04x, QPN RECV %06x SEND %06x, PSN %06x, SRQN %06x, GID %s\n"

// maxClients bounds the server's QPs and the SRQ's receives.
const maxClients = 1 << 12

// An xsrqGame is one run. In its options, numQP is the number of clients and iters the number of messages
// to each; table.cq serves all queues.
type xsrqGame struct {
	game
	srq   *verbs.SRQ
	peers []*xsrqPeer
}

// xsrqPeer is a client, or the server.
type xsrqPeer struct {
	conn          *exchange.Conn
	local, remote exchange.XRCDest
	send, recv    *verbs.QP
	sent          uint
}

func runXSRQ(env *tool.Env, args []string) int {
	o, status, ok := parseXSRQ(env, args)
	if !ok {
		return status
	}
	x := &xsrqGame{game: game{variant: xsrqVariant, options: o, env: env, local: make([]exchange.Dest, 1)}}
	if err := x.play(); err != nil {
		return env.Failf("%v", err)
	}
	fmt.Fprintln(env.Stdout, "success")
	return 0
}

// parseXSRQ parses the command line. If ok is false the program ends with status.
func parseXSRQ(env *tool.Env, args []string) (o *options, status int, ok bool) {
	o = &options{rxDepth: 1}
	f := tool.NewFlags(env, "[options]        wait for clients\n[options] HOST   connect to the server at HOST")
	f.Uint16VarP(&o.tcpPort, "port", "p", 18515, "exchange addresses over this TCP port")
	f.StringVarP(&o.device, "ib-dev", "d", "", "use this device (default: the one that reaches the peer)")
	f.Uint8VarP(&o.port, "ib-port", "i", 1, "use this port of the device")
	f.UintVarP(&o.size, "size", "s", xsrqVariant.bytes, "bytes of a message")
	f.UintVarP(&o.mtu, "mtu", "m", 1024, "path MTU: 256, 512, 1024, 2048 or 4096")
	f.UintVarP(&o.numQP, "clients", "c", 1, "number of clients (server only)")
	f.UintVarP(&o.iters, "num_tests", "n", 5, "number of messages to each client")
	f.Uint8VarP(&o.sl, "sl", "l", 0, "service level")
	f.BoolVarP(&o.events, "events", "e", false, "sleep until a completion event (default: poll)")
	f.BoolVarP(&o.onDemand, "odp", "o", false, "on-demand paging")
	f.IntVarP(&o.gidIndex, "gid-idx", "g", -1, "GID index of the port; below 0: by the peer's address")
	if status, ok := f.Parse(args); !ok {
		return nil, status, false
	}
	if f.NArg() > 1 {
		return nil, f.Misused("more than one host"), false
	}
	if o.server = f.Arg(0); o.server != "" {
		o.numQP = 1
	}
	switch {
	case o.numQP < 1 || o.numQP > maxClients:
		return nil, f.Misused(fmt.Sprintf("clients %d: must be 1 to %d", o.numQP, maxClients)), false
	case o.iters < 1:
		return nil, f.Misused("num_tests 0: must be at least 1"), false
	}
	bounded := *o
	bounded.numQP = 1
	if err := xsrqVariant.check(&bounded); err != nil {
		return nil, f.Misused(err.Error()), false
	}
	return o, 0, true
}

// play runs the program.
func (x *xsrqGame) play() error {
	defer x.close()
	defer x.hangUp()
	if err := x.meet(); err != nil {
		return err
	}
	if err := x.rally(); err != nil {
		return err
	}
	if err := x.part(); err != nil {
		return err
	}
	return x.close()
}

// meet finds the peers and connects to them. As in game.meet, all objects are created before if the options
// name device and GID.
func (x *xsrqGame) meet() error {
	switch {
	case x.device != "" && x.gidIndex >= 0:
		if err := x.setUp(netip.Addr{}); err != nil {
			return err
		}
	case x.device != "":
		if err := x.open(netip.Addr{}); err != nil {
			return err
		}
	default:
		if err := nearest.Check("", x.port, x.gidIndex, otherDevice); err != nil {
			return err
		}
	}
	if x.server != "" {
		conn, err := exchange.Dial(x.server, x.tcpPort)
		if err != nil {
			return err
		}
		return x.meetServer(&xsrqPeer{conn: conn})
	}
	l, err := exchange.Listen(x.tcpPort)
	if err != nil {
		return err
	}
	defer l.Close()
	if x.srq == nil {
		fmt.Fprintf(x.env.Stderr, "waiting for a client on TCP port %d; its address chooses device and GID\n", l.Port())
	}
	for range x.numQP {
		conn, err := l.Next()
		if err != nil {
			return err
		}
		if err := x.meetClient(&xsrqPeer{conn: conn}); err != nil {
			return err
		}
	}
	return nil
}

func (x *xsrqGame) meetServer(p *xsrqPeer) (err error) {
	x.peers = append(x.peers, p)
	if err := x.welcome(p, p.conn.Peer()); err != nil {
		return err
	}
	if err := p.conn.SendXRC(p.local); err != nil {
		return err
	}
	if p.remote, err = p.conn.RecvXRC(); err != nil {
		return err
	}
	x.print("remote", p.remote)
	return x.connect(p)
}

func (x *xsrqGame) meetClient(p *xsrqPeer) (err error) {
	x.peers = append(x.peers, p)
	if p.remote, err = p.conn.RecvXRC(); err != nil {
		return err
	}
	x.print("remote", p.remote)
	peer := p.conn.Peer()
	if gid := verbs.GID(p.remote.GID); !gid.IsZero() {
		peer = gid.Addr()
	}
	if err := x.welcome(p, peer); err != nil {
		return err
	}
	if err := p.conn.SendXRC(p.local); err != nil {
		return err
	}
	return x.connect(p)
}

// welcome creates a peer's objects, and the common ones for the first peer.
func (x *xsrqGame) welcome(p *xsrqPeer, peer netip.Addr) error {
	if x.srq == nil {
		if err := x.setUp(peer); err != nil {
			return err
		}
	}
	if err := x.makeQPs(p); err != nil {
		return err
	}
	num, err := x.srq.Num()
	if err != nil {
		return err
	}
	p.local = exchange.XRCDest{
		LID: x.local[0].LID, Recv: p.recv.QPN(), Send: p.send.QPN(), PSN: secret.PSN(), SRQN: num,
		GID: x.local[0].GID,
	}
	x.print("local", p.local)
	return nil
}

func (x *xsrqGame) print(whose string, d exchange.XRCDest) {
	fmt.Fprintf(x.env.Stdout, xsrqFormat, whose, d.LID, d.Recv, d.Send, d.PSN, d.SRQN, verbs.GID(d.GID))
}

// hangUp closes the TCP connections.
func (x *xsrqGame) hangUp() {
	for _, p := range x.peers {
		_ = p.conn.Close()
	}
}

// part waits until every end has received everything, so that no QP is closed early.
func (x *xsrqGame) part() error {
	say := func() error {
		for _, p := range x.peers {
			if err := p.conn.SendEnd(); err != nil {
				return err
			}
		}
		return nil
	}
	if x.server != "" {
		if err := say(); err != nil {
			return err
		}
		return x.peers[0].conn.WaitEnd()
	}
	for _, p := range x.peers {
		if err := p.conn.WaitEnd(); err != nil {
			return err
		}
	}
	return say()
}

package cmtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// xsimple is rdma_xclient or rdma_xserver: a message from the client to the server, over RC or XRC.
type xsimple struct {
	simple
	xrc bool
}

func runXClient(env *tool.Env, args []string) int { return runXSimple("rdma_xclient", env, args) }
func runXServer(env *tool.Env, args []string) int { return runXSimple("rdma_xserver", env, args) }

func runXSimple(name string, env *tool.Env, args []string) int {
	x := &xsimple{simple: simple{name: name, env: env, host: rdmacm.DefaultHost()}}
	if status, ok := x.parse(args); !ok {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return x.start(ctx)
}

func (x *xsimple) parse(args []string) (status int, ok bool) {
	usage := "[-s server_address] [-p port_number] [-c communication_type]"
	if x.isServer() {
		usage = "[-p port_number] [-c communication_type]"
	}
	f := tool.NewFlags(x.env, usage)
	if !x.isServer() {
		f.StringVarP(&x.server, "server", "s", "127.0.0.1", "server address")
	}
	f.StringVarP(&x.port, "port", "p", simplePort, "port number")
	comm := f.StringP("communication", "c", "r", "communication type: r (RC) or x (XRC)")
	if status, ok = f.Parse(args); !ok {
		return status, false
	}
	switch kind := strings.ToLower(*comm); {
	case len(f.Args()) > 0:
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	case strings.HasPrefix(kind, "x"):
		x.xrc = true
	case !strings.HasPrefix(kind, "r"):
		return f.Misused(fmt.Sprintf("unknown communication type %q: must be r (RC) or x (XRC)", *comm)), false
	}
	return 0, true
}

func (x *xsimple) isServer() bool { return x.name == "rdma_xserver" }

func (x *xsimple) start(ctx context.Context) int {
	if x.isServer() {
		return x.play(ctx, x.serve)
	}
	return x.play(ctx, x.client)
}

// hints returns the address hints; xrc is the type of the QPs over XRC.
func (x *xsimple) hints(flags rdmacm.AIFlags, xrc verbs.QPType) *rdmacm.AddrInfo {
	if x.xrc {
		return &rdmacm.AddrInfo{Flags: flags, PortSpace: rdmacm.PSIB, QPType: xrc}
	}
	return &rdmacm.AddrInfo{Flags: flags, PortSpace: rdmacm.PSTCP, QPType: verbs.QPTypeRC}
}

func (x *xsimple) client(ctx context.Context) error {
	res, err := rdmacm.GetAddrInfo(ctx, x.server, x.port, x.hints(0, verbs.QPTypeXRCSend))
	if err != nil {
		return err
	}
	init := &verbs.QPInitAttr{SigAll: true, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxInlineData: simpleSize}}
	if !x.xrc {
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 1, 1
	}
	id, err := x.host.CreateEP(ctx, res, nil, init)
	if err != nil {
		return err
	}
	defer id.Close()
	if err := id.Connect(ctx, nil); err != nil {
		return err
	}
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: make([]byte, simpleSize)}
	if x.xrc { // the server's private data has the number of its SRQ
		wr.RemoteSRQN = binary.BigEndian.Uint32(id.Event().Conn.PrivateData)
	}
	return exchange(ctx, id, func() error { return id.QP().PostSend(wr) }, comp(id.GetSendComp, ctx))
}

func (x *xsimple) serve(ctx context.Context) error {
	res, err := rdmacm.GetAddrInfo(ctx, "", x.port, x.hints(rdmacm.RAIPassive, verbs.QPTypeXRCRecv))
	if err != nil {
		return err
	}
	init := &verbs.QPInitAttr{Cap: verbs.QPCap{MaxRecvWR: 1, MaxRecvSGE: 1}}
	if !x.xrc {
		init.Cap.MaxSendWR, init.Cap.MaxSendSGE = 1, 1
	}
	id, end, err := x.request(ctx, res, init)
	if err != nil {
		return err
	}
	defer end()
	srqn, err := x.createSRQ(id)
	if err != nil {
		return err
	}
	mr, err := receive(id)
	if err != nil {
		return err
	}
	defer mr.Close()
	err = id.Accept(ctx, &rdmacm.ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, srqn)})
	if err != nil {
		return err
	}
	return exchange(ctx, id, comp(id.GetRecvComp, ctx))
}

// createSRQ creates the SRQ that receives the message over XRC, and returns its number.
func (x *xsimple) createSRQ(id *rdmacm.ID) (uint32, error) {
	if !x.xrc {
		return 0, nil
	}
	if err := id.CreateSRQ(nil, &verbs.SRQInitAttr{Context: id, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}); err != nil {
		return 0, err
	}
	return id.SRQ().Num()
}

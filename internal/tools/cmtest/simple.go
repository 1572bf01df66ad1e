package cmtest

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	simpleSize = 16 // bytes of the message
	simplePort = "7471"
)

// simple is rdma_client or rdma_server.
type simple struct {
	env          *tool.Env
	host         *rdmacm.Host
	name         string
	server, port string
}

func runClient(env *tool.Env, args []string) int { return runSimple("rdma_client", env, args) }
func runServer(env *tool.Env, args []string) int { return runSimple("rdma_server", env, args) }

func runSimple(name string, env *tool.Env, args []string) int {
	s := &simple{name: name, env: env, host: rdmacm.DefaultHost()}
	if status, ok := s.parse(args); !ok {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return s.start(ctx)
}

func (s *simple) parse(args []string) (status int, ok bool) {
	f := tool.NewFlags(s.env, "[-s server_address] [-p port_number]")
	def := "127.0.0.1"
	if s.name == "rdma_server" {
		def = ""
	}
	f.StringVarP(&s.server, "server", "s", def, "server address")
	f.StringVarP(&s.port, "port", "p", simplePort, "port number")
	if status, ok = f.Parse(args); !ok {
		return status, false
	}
	if len(f.Args()) > 0 {
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	}
	return 0, true
}

func (s *simple) start(ctx context.Context) int {
	if s.name == "rdma_server" {
		return s.play(ctx, s.serve)
	}
	return s.play(ctx, s.client)
}

// play runs the program and prints the lines and the status that the C programs print.
func (s *simple) play(ctx context.Context, program func(context.Context) error) int {
	fmt.Fprintf(s.env.Stdout, "%s: start\n", s.name)
	err := program(ctx)
	if err != nil {
		fmt.Fprintf(s.env.Stderr, "%s: %v\n", s.name, err)
	}
	status := statusOf(err)
	fmt.Fprintf(s.env.Stdout, "%s: end %d\n", s.name, status)
	if status != 0 {
		return 1
	}
	return 0
}

func (s *simple) init() *verbs.QPInitAttr {
	return &verbs.QPInitAttr{SigAll: true, Cap: verbs.QPCap{
		MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: simpleSize,
	}}
}

// exchange runs the steps and closes the connection.
func exchange(ctx context.Context, id *rdmacm.ID, steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return id.Disconnect(ctx)
}

func comp(get func(context.Context) (verbs.WC, error), ctx context.Context) func() error {
	return func() error {
		wc, err := get(ctx)
		if err == nil {
			err = wc.Err()
		}
		return err
	}
}

// request waits for a client at an address. end closes its ID and the listening one.
func (s *simple) request(ctx context.Context, at *rdmacm.AddrInfo, init *verbs.QPInitAttr) (id *rdmacm.ID, end func(),
	err error) {
	l, err := s.host.CreateEP(ctx, at, nil, init)
	if err != nil {
		return nil, nil, err
	}
	if err = l.Listen(0); err == nil {
		id, err = l.GetRequest(ctx)
	}
	if err != nil {
		l.Close()
		return nil, nil, err
	}
	return id, func() { id.Close(); l.Close() }, nil
}

// receive registers a buffer for the message and posts a receive.
func receive(id *rdmacm.ID) (*verbs.MR, error) {
	mr, err := id.RegMsgs(make([]byte, simpleSize))
	if err != nil {
		return nil, err
	}
	if err := id.PostRecv(0, mr.Bytes(), mr); err != nil {
		mr.Close()
		return nil, err
	}
	return mr, nil
}

func (s *simple) client(ctx context.Context) error {
	res, err := rdmacm.GetAddrInfo(ctx, s.server, s.port, &rdmacm.AddrInfo{PortSpace: rdmacm.PSTCP})
	if err != nil {
		return err
	}
	id, err := s.host.CreateEP(ctx, res, nil, s.init())
	if err != nil {
		return err
	}
	defer id.Close()
	mr, err := receive(id)
	if err != nil {
		return err
	}
	defer mr.Close()
	if err := id.Connect(ctx, nil); err != nil {
		return err
	}
	return exchange(ctx, id,
		func() error { return id.PostSend(0, make([]byte, simpleSize), nil, verbs.SendInline) },
		comp(id.GetSendComp, ctx), comp(id.GetRecvComp, ctx))
}

func (s *simple) serve(ctx context.Context) error {
	res, err := rdmacm.GetAddrInfo(ctx, s.server, s.port,
		&rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSTCP})
	if err != nil {
		return err
	}
	id, end, err := s.request(ctx, res, s.init())
	if err != nil {
		return err
	}
	defer end()
	mr, err := receive(id)
	if err != nil {
		return err
	}
	defer mr.Close()
	if err := id.Accept(ctx, nil); err != nil {
		return err
	}
	return exchange(ctx, id, comp(id.GetRecvComp, ctx),
		func() error { return id.PostSend(0, make([]byte, simpleSize), nil, verbs.SendInline) },
		comp(id.GetSendComp, ctx))
}

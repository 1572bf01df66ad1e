package rdmacm

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// endpoint is what CreateEP leaves with an ID.
type endpoint struct {
	pd      *verbs.PD         // passive: for the QPs of requests
	init    *verbs.QPInitAttr // passive: those QPs; nil for none
	connect []byte            // active: what stands before private data
}

// epTimeout bounds each step of an active CreateEP.
const epTimeout = 2 * time.Second

// CreateEP makes a synchronous ID from a result of GetAddrInfo on the default host (rdma_create_ep).
func CreateEP(c context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) (*ID, error) {
	return defaultHost.CreateEP(c, res, pd, init)
}

// CreateEP makes a synchronous ID from the first of the results of GetAddrInfo (rdma_create_ep). An active one may Connect:
// its route is resolved, and with init it has a QP, in pd or the default PD. A passive one may Listen: its address is bound, and
// with init each ID of GetRequest has a QP, in pd or the default PD. Migrate makes it asynchronous. Close destroys
// it with QP and SRQ. If a step fails nothing is left.
func (h *Host) CreateEP(c context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) (*ID, error) {
	id, err := h.CreateID(nil, res.PortSpace, nil)
	if err != nil {
		return nil, err
	}
	id.qpType = res.QPType
	id.ep = &endpoint{connect: bytes.Clone(res.Connect)}
	if res.Flags&RAIPassive != 0 {
		if id.ep.pd = pd; init != nil {
			copied := *init
			id.ep.init = &copied
		}
		err = id.BindAddr(res.SrcAddr)
	} else {
		err = id.prepare(c, res, pd, init)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

// prepare does what comes before Connect.
func (id *ID) prepare(c context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) error {
	if err := id.ResolveAddr(c, res.SrcAddr, res.DstAddr, epTimeout); err != nil {
		return err
	}
	if len(res.Route) > 0 {
		if err := id.SetOption(OptionIB, OptionIBPath, res.Route); err != nil {
			return err
		}
		if err := id.complete(c, "resolve_route"); err != nil {
			return err
		}
	} else if err := id.ResolveRoute(c, epTimeout); err != nil {
		return err
	}
	if init == nil {
		return nil
	}
	init.Type = res.QPType
	return id.CreateQP(pd, init)
}

// Options are what Dial and Listen need to know besides an address. The zero value is right for small messages.
type Options struct {
	QP        verbs.QPCap    // sizes of the QP; zero means 64 sends and receives of 1 SGE, 64 bytes inline
	SigAll    bool           // every send makes a completion
	PortSpace PortSpace      // zero means PSTCP
	Param     *ConnParam     // of Connect or Accept; nil for the usual
	SrcAddr   netip.AddrPort // Dial: where from
	Backlog   int            // Listen
	Host      *Host          // nil for the default one
}

func (o *Options) host() *Host {
	if o.Host != nil {
		return o.Host
	}
	return defaultHost
}

func (o *Options) init() *verbs.QPInitAttr {
	if o.QP == (verbs.QPCap{}) {
		o.QP = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	}
	return &verbs.QPInitAttr{Cap: o.QP, SigAll: o.SigAll}
}

func (o *Options) info(c context.Context, address string, flags AIFlags) (*AddrInfo, error) {
	node, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return GetAddrInfo(c, node, service, &AddrInfo{Flags: flags, PortSpace: o.PortSpace, SrcAddr: o.SrcAddr})
}

// Dial connects to an address, "host:port", and returns a synchronous ID with a QP (getaddrinfo, create_ep and connect in one). opts may
// be nil. Close ends the connection and destroys everything.
func Dial(c context.Context, address string, opts *Options) (*ID, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	res, err := o.info(c, address, 0)
	if err != nil {
		return nil, err
	}
	id, err := o.host().CreateEP(c, res, nil, o.init())
	if err != nil {
		return nil, err
	}
	if err := id.Connect(c, o.Param); err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

// Listener takes the connections that Dial or any other client makes.
type Listener struct {
	id   *ID
	opts Options
}

// Listen listens at an address, ":port" or "host:port"; port 0 chooses a free one (getaddrinfo, create_ep and listen in one). opts may
// be nil.
func Listen(c context.Context, address string, opts *Options) (*Listener, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.SrcAddr = netip.AddrPort{}
	res, err := o.info(c, address, RAIPassive)
	if err != nil {
		return nil, err
	}
	id, err := o.host().CreateEP(c, res, nil, o.init())
	if err != nil {
		return nil, err
	}
	if err := id.Listen(o.Backlog); err != nil {
		_ = id.Close()
		return nil, err
	}
	return &Listener{id, o}, nil
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// Accept waits for a client and connects to it (get_request and accept in one). The ID has a QP.
func (l *Listener) Accept(c context.Context) (*ID, error) {
	id, err := l.Request(c)
	if err != nil {
		return nil, err
	}
	if err := id.Accept(c, l.opts.Param); err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

// Request waits for a client and leaves Accept or Reject to the program, which may post receives first. The ID has a QP, and the
// client's private data is in its Event.
func (l *Listener) Request(c context.Context) (*ID, error) { return l.id.GetRequest(c) }

// ID is the listening ID.
func (l *Listener) ID() *ID { return l.id }

// Close ends listening. Connections stay.
func (l *Listener) Close() error { return l.id.Close() }

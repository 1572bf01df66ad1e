package rdmacm

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"syscall"
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
// it with QP and SRQ. If a step fails nothing is left. EINVAL without a result.
func (h *Host) CreateEP(c context.Context, res *AddrInfo, pd *verbs.PD, init *verbs.QPInitAttr) (*ID, error) {
	if res == nil {
		return nil, &Error{Op: "create_ep", Errno: syscall.EINVAL, Detail: "there is no result of GetAddrInfo"}
	}
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
		return nil, &Error{Op: "getaddrinfo", Errno: syscall.EINVAL, Err: err, Hint: "an address is host:port or :port"}
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

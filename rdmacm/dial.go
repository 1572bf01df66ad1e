package rdmacm

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Options are the options of Dial and Listen. The zero value is right for small messages.
type Options struct {
	// QP holds the sizes of the QP. The zero value means 64 sends and receives of 1 SGE, 64 bytes inline; if a field is
	// not 0, all fields count as they are.
	QP        verbs.QPCap
	SigAll    bool           // every send makes a completion
	PortSpace PortSpace      // zero means PSTCP
	Param     *ConnParam     // of Connect or Accept; nil for their defaults
	SrcAddr   netip.AddrPort // Dial: the source address; zero for the route's
	Backlog   int            // Listen: the argument of ID.Listen
	Host      *Host          // nil for the default host

	// Prepare is called with each new ID, whose QP is in INIT, before Dial asks for the connection and before a Listener
	// accepts it. It may register memory and post receives, so that the peer's first message finds one: over RoCE the
	// peer would send again, but iWARP ends the connection. An error ends Dial, or refuses the request and is the
	// error of Listener.Accept. Several requests are prepared at a time. Listener.Request does not call it.
	Prepare func(*ID) error

	// AckTimeout is the ACK timeout of this side's QP, 4.096 us * 2^AckTimeout, 1 to 31, and Zero for none;
	// 0 means that of the path, usually 17, 0.54 s (SetAckTimeout).
	AckTimeout uint8

	// RetryCount is how often both sides' QPs repeat a packet before a request fails with RETRY_EXC_ERR, 1 to 7,
	// and Zero for never; 0 means Param's, and 7 without Param. It is for Dial only: the active side
	// decides.
	RetryCount uint8

	// KeepAlive is the time without a packet from the peer after which this side checks that it still answers
	// (SetKeepAlive), at least 1 ms; 0 means no checks. A peer that does not answer for as long again, and at least
	// 5 s, is gone. Each side chooses for itself.
	KeepAlive time.Duration

	// PathMTU fixes the path MTU (SetPathMTU): Dial asks for it and no less, Listen refuses requests for more. 0 means
	// what the port and the route allow; Dial takes less if the peer cannot have that.
	PathMTU verbs.MTU
}

// host is the host of the options.
func (o *Options) host() *Host {
	if o.Host != nil {
		return o.Host
	}
	return defaultHost
}

// init is the attributes of the QP.
func (o *Options) init() *verbs.QPInitAttr {
	if o.QP == (verbs.QPCap{}) {
		o.QP = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	}
	return &verbs.QPInitAttr{Cap: o.QP, SigAll: o.SigAll}
}

// info resolves an address.
func (o *Options) info(ctx context.Context, address string, flags AIFlags) (*AddrInfo, error) {
	node, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &Error{Op: "getaddrinfo", Errno: syscall.EINVAL, Err: err, Hint: "an address is host:port or :port"}
	}
	return GetAddrInfo(ctx, node, service, &AddrInfo{Flags: flags, PortSpace: o.PortSpace, SrcAddr: o.SrcAddr})
}

// set sets the options of a new ID.
func (o *Options) set(id *ID) error {
	if o.PathMTU != 0 {
		if err := id.SetPathMTU(o.PathMTU); err != nil {
			return err
		}
	}
	if o.KeepAlive != 0 {
		if err := id.SetKeepAlive(o.KeepAlive); err != nil {
			return err
		}
	}
	switch o.AckTimeout {
	case 0:
		return nil
	case verbs.Zero, Zero:
		return id.SetAckTimeout(0)
	}
	return id.SetAckTimeout(o.AckTimeout)
}

// param is the parameters of Connect; nil for its defaults.
func (o *Options) param() (*ConnParam, error) {
	if o.RetryCount == 0 {
		return o.Param, nil
	}
	p := ConnParam{}
	if o.Param != nil {
		p = *o.Param
	}
	switch {
	case o.RetryCount == verbs.Zero, o.RetryCount == Zero:
		p.RetryCount = Zero
	case o.RetryCount <= 7:
		p.RetryCount = o.RetryCount
	default:
		return nil, &Error{Op: "dial", Errno: syscall.EINVAL, Detail: "Options.RetryCount: must be 0 to 7, or Zero"}
	}
	return &p, nil
}

// Dial connects to an address, "host:port", and returns a synchronous ID with a QP (getaddrinfo, create_ep and connect
// in one). opts may be nil. Close ends the connection and destroys everything. EINVAL for an address without port and
// for bad options; otherwise the errors of GetAddrInfo, and of ResolveAddr, ResolveRoute, CreateQP and Connect of a
// synchronous ID: ECONNREFUSED if nobody listens there, ETIMEDOUT without an answer, ENODEV without a suitable device.
// If ctx is done the error wraps ctx's.
func Dial(ctx context.Context, address string, opts *Options) (*ID, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	param, err := o.param()
	if err != nil {
		return nil, err
	}
	res, err := o.info(ctx, address, 0)
	if err != nil {
		return nil, err
	}
	id, err := o.host().createEP(ctx, res, nil, o.init(), o.set)
	if err != nil {
		return nil, err
	}
	if o.Prepare != nil {
		err = o.Prepare(id)
	}
	if err == nil {
		err = id.Connect(ctx, param)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

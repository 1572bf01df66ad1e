// Package rping is librdmacm's rping: a client and a server that pass a buffer back and forth by RDMA READ
// and WRITE. Either end may be the C program.
//
// In each round the client sends the address of its buffer. The server READs it and sends a go-ahead. The
// client sends the address of its destination buffer; the server WRITEs the data there and sends another
// go-ahead.
//
// It imports rdmacm, verbs, internal/lookup and internal/tools/tool.
package rping

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// options of the command line.
type options struct {
	server, client, persistent bool
	addr, source               string
	port                       uint16
	count, size                int
	verbose, validate, debug   bool
	ownQP                      bool
	tos                        int
	bind, from                 netip.Addr
}

const (
	defaultPort = 7174
	defaultSize = 64
	minSize     = 27 // as in the C program: room for the text and a number
	maxSize     = 64*1024 - 1
)

func parse(env *tool.Env, args []string) (o *options, status int, ok bool) {
	o = &options{}
	f := tool.NewFlags(env,
		"-s [-vVd] [-S size] [-C count] [-a addr] [-p port]\n-c [-vVd] [-S size] [-C count] [-I addr] -a addr [-p port]")
	f.BoolVarP(&o.client, "client", "c", false, "client side")
	f.StringVarP(&o.source, "source", "I", "", "source address to bind to for the client")
	f.BoolVarP(&o.server, "server", "s", false, "server side; to bind to any address with IPv6 use -a ::0")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "display ping data")
	f.BoolVarP(&o.validate, "validate", "V", false, "validate ping data")
	f.BoolVarP(&o.debug, "debug", "d", false, "display each step")
	f.IntVarP(&o.size, "size", "S", defaultSize, "ping data size in bytes")
	f.IntVarP(&o.count, "count", "C", 0, "ping count; 0 is for ever")
	f.StringVarP(&o.addr, "address", "a", "", "address")
	f.Uint16VarP(&o.port, "port", "p", defaultPort, "port")
	f.BoolVarP(&o.persistent, "persistent", "P", false, "server for any number of connections, also concurrent ones")
	f.BoolVarP(&o.ownQP, "own-qp", "q", false, "create and modify the QP without the connection manager")
	f.IntVarP(&o.tos, "tos", "t", -1, "type of service of the connection's packets")
	if status, ok = f.Parse(args); !ok {
		return nil, status, false
	}
	switch {
	case len(f.Args()) > 0:
		return nil, f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	case o.server == o.client:
		return nil, f.Misused("must be given either -s or -c"), false
	case o.client && o.addr == "":
		return nil, f.Misused("the client needs -a"), false
	case o.size < minSize || o.size > maxSize:
		return nil, env.Failf("Invalid size %d (valid range is %d to %d)", o.size, minSize, maxSize), false
	case o.count < 0:
		return nil, env.Failf("Invalid count %d", o.count), false
	case o.tos > 255:
		return nil, env.Failf("Invalid type of service %d (valid range is 0 to 255)", o.tos), false
	}
	if err := o.resolve(); err != nil {
		return nil, env.Failf("%v", err), false
	}
	return o, 0, true
}

// resolve resolves the addresses.
func (o *options) resolve() (err error) {
	o.bind = netip.IPv4Unspecified()
	if o.addr != "" {
		if o.bind, err = addrOf(o.addr); err != nil {
			return err
		}
	}
	if o.source != "" {
		o.from, err = addrOf(o.source)
	}
	return err
}

func addrOf(host string) (netip.Addr, error) {
	list, err := lookup.Addrs(context.Background(), "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	return list[0], nil
}

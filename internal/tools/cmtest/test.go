package cmtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	resolveTimeout = 2 * time.Second
	// silence is the longest time between two messages while both ends run. After it the programs fail.
	maxSilence = time.Minute
)

// test is one run of a program.
type test struct {
	name  string // prefix of its messages
	env   *tool.Env
	host  *rdmacm.Host
	ctx   context.Context
	typ   verbs.QPType
	hints rdmacm.AddrInfo

	// Options.
	server, bind string
	port         string
	conns        int
	count, size  int
	tos, ack     int

	ch    *rdmacm.EventChannel
	nodes []*node
	used  int // nodes of a server that were given a request
	left  int // nodes that are not connected yet
	open  int // connections that have not ended yet
	info  *rdmacm.AddrInfo

	silence   time.Duration // time-out for the next message; 0: none
	meanwhile func() error  // called between polls; may be nil
}

// flags defines the options that the programs share.
func (t *test) flags(env *tool.Env) *tool.Flags {
	t.env = env
	f := tool.NewFlags(env, "[options]")
	f.StringVarP(&t.bind, "bind", "b", "", "bind address")
	f.IntVarP(&t.conns, "connections", "c", 1, "number of connections")
	f.IntVarP(&t.count, "message-count", "C", 10, "messages for each connection")
	f.IntVarP(&t.size, "message-size", "S", 100, "bytes of a message")
	return f
}

// flagsOfPeer defines the options of the programs that have a client and a server.
func (t *test) flagsOfPeer(f *tool.Flags) (format, space *string) {
	f.StringVarP(&t.server, "server", "s", "", "server address; without it this is the server")
	format = f.StringP("format", "f", "name", "address format: name, ip or ipv6")
	f.IntVarP(&t.tos, "tos", "t", -1, "type of service")
	return format, space
}

// Limits of the options. They keep the memory of the objects and buffers within what a machine may have.
const (
	maxConns = 1 << 20
	maxSize  = 1 << 30
)

// check rejects invalid options.
func (t *test) check(f *tool.Flags) (status int, ok bool) {
	switch {
	case len(f.Args()) > 0:
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	case t.conns < 1 || t.conns > maxConns:
		return f.Misused(fmt.Sprintf("connections %d: must be 1 to %d", t.conns, maxConns)), false
	case t.count < 0:
		return f.Misused(fmt.Sprintf("message count %d: must be at least 0", t.count)), false
	case t.size < 0 || t.size > maxSize:
		return f.Misused(fmt.Sprintf("message size %d: must be 0 to %d", t.size, maxSize)), false
	case t.tos > 255 || t.ack > 31:
		return f.Misused("the type of service must be 0 to 255, the ACK timeout 0 to 31"), false
	}
	if t.size == 0 {
		t.count = 0
	}
	return 0, true
}

// format parses an address format.
func (t *test) format(name string) {
	switch name = strings.ToLower(name); {
	case strings.HasPrefix(name, "ip"):
		t.hints.Flags |= rdmacm.RAINumericHost
	case !strings.HasPrefix(name, "name"):
		fmt.Fprintln(t.env.Stderr, "Warning: unknown address format")
	}
}

// run creates the event channel and the nodes, runs the program and prints the closing lines that all
// programs print.
func (t *test) run(program func() error) int {
	if t.ctx == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		t.ctx = ctx
	}
	if t.host == nil {
		t.host = rdmacm.DefaultHost()
	}
	t.left = t.conns
	var err error
	if t.ch, err = t.host.CreateEventChannel(); err != nil {
		return t.env.Failf("failed to create event channel: %v", err)
	}
	for range t.conns {
		t.nodes = append(t.nodes, &node{test: t})
	}
	err = program()
	if err != nil {
		t.sayf("%s: %v", t.name, err)
		if why := inWords(err); why != nil {
			fmt.Fprintf(t.env.Stderr, "%s: %v\n", t.name, why)
		}
	}
	t.sayf("test complete")
	for _, n := range t.nodes {
		n.destroy()
	}
	_ = t.ch.Close()
	status := statusOf(err)
	t.sayf("return status %d", status)
	if status != 0 {
		return 1
	}
	return 0
}

// statusOf returns the status that the C programs return: the negated errno or the status of an event.
func statusOf(err error) int {
	var ev *eventError
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ev):
		return ev.status
	case errors.As(err, &errno):
		return -int(errno)
	}
	return -1
}

// eventError is an event that ends the program.
type eventError struct {
	typ    rdmacm.EventType
	status int
	err    error
}

func (e *eventError) Error() string {
	return fmt.Sprintf("event: %v, error: %d", e.typ, e.status)
}

func (e *eventError) Unwrap() error { return e.err }

// inWords returns the reason of an event that ended the program; nil if err is none. The C programs print its number
// only.
func inWords(err error) error {
	var ev *eventError
	if errors.As(err, &ev) {
		return ev.err
	}
	return nil
}

func failed(ev *rdmacm.Event) error { return &eventError{ev.Type, ev.Status, ev.Err()} }

func (t *test) sayf(format string, args ...any) { fmt.Fprintf(t.env.Stdout, format+"\n", args...) }

// resolve resolves the addresses from the options.
func (t *test) resolve() (err error) {
	h := t.hints
	node := t.server
	if t.server == "" {
		h.Flags |= rdmacm.RAIPassive
		node = t.bind
	} else if t.bind != "" {
		src, err := rdmacm.GetAddrInfo(t.ctx, t.bind, "",
			&rdmacm.AddrInfo{Flags: h.Flags | rdmacm.RAIPassive, PortSpace: h.PortSpace})
		if err != nil {
			return err
		}
		h.SrcAddr = src.SrcAddr
	}
	t.info, err = rdmacm.GetAddrInfo(t.ctx, node, t.port, &h)
	return err
}

// listen starts listening.
func (t *test) listen() (*rdmacm.ID, error) {
	t.sayf("%s: starting server", t.name)
	if err := t.resolve(); err != nil {
		return nil, err
	}
	id, err := t.host.CreateID(t.ch, t.hints.PortSpace, nil)
	if err != nil {
		return nil, err
	}
	if err = id.BindAddr(t.info.SrcAddr); err == nil {
		err = id.Listen(0)
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

// dial starts connecting all nodes.
func (t *test) dial() error {
	t.sayf("%s: starting client", t.name)
	if err := t.resolve(); err != nil {
		return err
	}
	t.sayf("%s: connecting", t.name)
	return t.resolveAll(t.info.SrcAddr, t.info.DstAddr)
}

func (t *test) resolveAll(src, dst netip.AddrPort) (err error) {
	for _, n := range t.nodes {
		if n.id, err = t.host.CreateID(t.ch, t.hints.PortSpace, n); err != nil {
			return err
		}
		if err := n.id.ResolveAddr(t.ctx, src, dst, resolveTimeout); err != nil {
			return err
		}
	}
	return nil
}

// events handles events until *left is 0.
func (t *test) events(left *int, handle func(ev *rdmacm.Event) error) error {
	for *left > 0 {
		ev, err := t.ch.GetEvent(t.ctx)
		if err != nil {
			return err
		}
		err = handle(ev)
		_ = ev.Ack()
		if err != nil {
			return err
		}
	}
	return nil
}

// request assigns a new ID to the next node, or rejects it if all nodes are in use.
func (t *test) request(id *rdmacm.ID, accept func(n *node) error) error {
	if t.used == t.conns {
		_ = id.Reject(nil)
		go id.Close() // waits for the event's Ack
		return nil
	}
	n := t.nodes[t.used]
	t.used++
	n.id = id
	id.Context = n
	err := n.setUp()
	if err == nil {
		err = accept(n)
	}
	if err != nil {
		t.sayf("%s: failing connection request", t.name)
		_ = id.Reject(nil)
	}
	return err
}

// each calls f for every connected node.
func (t *test) each(f func(n *node) error) error {
	for _, n := range t.nodes {
		if n.connected {
			if err := f(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// number parses a port space as strtol does.
func number(text string) (rdmacm.PortSpace, error) {
	n, err := strconv.ParseUint(text, 0, 16)
	if err != nil {
		return 0, fmt.Errorf("-p %s: must be a port space number: 0x111 for UDP, 0x2 for IPoIB", text)
	}
	return rdmacm.PortSpace(n), nil
}

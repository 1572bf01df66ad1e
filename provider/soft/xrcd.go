package soft

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/xrcd"
	"github.com/verbena-rdma/verbena/verbs"
)

// domains are a device's XRC domains with a file, shared by all contexts of the process. Other processes of this user
// share a domain of the same file as members of it; package transport's turn.go says how.
type domains struct {
	name string     // of the device, on this host
	mu   sync.Mutex // guards byFile, and refs of each domain
	// +checklocks:mu
	byFile map[fileID]*domain
}

// domain is an XRC domain, which several contexts may have opened.
type domain struct {
	*engine.XRCD
	dev     *device
	engine  *engine.Engine
	regions *mr.Table
	id      fileID
	file    io.Closer    // keeps the inode, so that its number is not reused; nil for a domain without a file
	member  *xrcd.Member // nil: no other process can have the domain
	refs    int          // guarded by domains.mu

	mu sync.Mutex // guards targets
	// +checklocks:mu
	targets map[uint32]*target // the XRC_RECV QPs by number

	serving sync.WaitGroup // goroutines that serve other members
	feedsMu sync.Mutex     // guards the following fields
	// +checklocks:feedsMu
	feeds map[int]*feed // by member
	// +checklocks:feedsMu
	closing bool
}

// newDomain makes a domain without a file if member is nil.
func (c *deviceContext) newDomain(member *xrcd.Member) *domain {
	n := -1
	if member != nil {
		n = member.Number()
	}
	d := &domain{
		XRCD: c.eng.NewSharedXRCD(n), dev: c.dev, engine: c.eng, regions: c.regions, member: member, refs: 1,
		targets: make(map[uint32]*target), feeds: make(map[int]*feed),
	}
	if member != nil {
		d.serving.Go(d.accept)
	}
	return d
}

// openDomain returns the domain of a file, which it makes if flags allow it.
func (c *deviceContext) openDomain(fd, flags int) (*domain, error) {
	if fd == -1 {
		return c.newDomain(nil), nil
	}
	id, file, err := openInode(fd)
	if err != nil {
		return nil, verbsError("file of the XRC domain", err)
	}
	t := &c.dev.domains
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.byFile[id]
	switch {
	case d != nil && flags&os.O_EXCL != 0:
		err = fail(verbs.EINVAL, "O_EXCL: the file already has an XRC domain")
	case d != nil:
		d.refs++
	default:
		member, jerr := t.join(id, flags)
		if jerr != nil {
			err = jerr
			break
		}
		d = c.newDomain(member)
		d.id, d.file = id, file
		if t.byFile == nil {
			t.byFile = make(map[fileID]*domain)
		}
		t.byFile[id] = d
		return d, nil
	}
	_ = file.Close()
	return d, err
}

// join makes this process, which does not have the domain of the file yet, a member of it. The member is nil if the
// system cannot share domains.
func (t *domains) join(id fileID, flags int) (*xrcd.Member, error) {
	how := xrcd.How{Create: flags&os.O_CREATE != 0, Exclusive: flags&os.O_EXCL != 0}
	m, err := xrcd.Join(xrcd.Domain{Device: t.name, Dev: id.dev, Ino: id.ino}, how)
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, xrcd.ErrUnsupported) && how.Create:
		return nil, nil
	case errors.Is(err, xrcd.ErrNone), errors.Is(err, xrcd.ErrUnsupported):
		return nil, fail(verbs.EAGAIN, "the file has no XRC domain; O_CREATE makes one")
	case errors.Is(err, xrcd.ErrExists):
		return nil, fail(verbs.EINVAL, "O_EXCL: %v", err)
	case errors.Is(err, xrcd.ErrForeign) && how.Exclusive:
		return nil, fail(verbs.EINVAL, "O_EXCL: %v", err)
	case errors.Is(err, xrcd.ErrForeign):
		return nil, fail(verbs.EOPNOTSUPP, "%v; processes of one user only share a domain", err)
	case errors.Is(err, xrcd.ErrFull):
		return nil, fail(verbs.ENOMEM, "%v, and no more can have it", err)
	default:
		return nil, fail(verbs.EAGAIN, "%v", err)
	}
}

// close releases one reference. With the last one the QPs of the domain end that only handles of other processes are
// left of, and the guests here.
func (d *domain) close() {
	t := &d.dev.domains
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.refs--; d.refs > 0 {
		return
	}
	if d.member != nil {
		d.feedsMu.Lock()
		d.closing = true
		d.feedsMu.Unlock()
		d.member.Close()
		d.serving.Wait()
	}
	if d.file != nil {
		delete(t.byFile, d.id)
		_ = d.file.Close()
	}
}

// accept serves other members until the domain is closed.
func (d *domain) accept() {
	for {
		c, err := d.member.Accept()
		if err != nil {
			return
		}
		d.serving.Go(func() { d.serve(c) })
	}
}

// serve serves a connection according to its first message.
func (d *domain) serve(c *xrcd.Conn) {
	b, err := c.Receive()
	switch {
	case err == nil && len(b) == 1 && message(b[0]) == msgFeed:
		(&guests{c, d, make(map[uint32]*guest)}).serve()
	case err == nil && len(b) == 5 && message(b[0]) == msgHandle:
		d.serveHandle(c, binary.BigEndian.Uint32(b[1:]))
	default:
		c.Close()
	}
}

// targetOf returns an XRC_RECV QP of this process, nil if there is none.
func (d *domain) targetOf(qpn uint32) *target {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.targets[qpn]
}

// allTargets returns all XRC_RECV QPs of this process.
func (d *domain) allTargets() []*target {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.targets))
}

// xrcDomain is a DriverXRCD: one context's reference to a domain.
type xrcDomain struct {
	*domain
	ctx *deviceContext
}

// OpenXRCD opens an XRC domain.
func (c *deviceContext) OpenXRCD(fd, flags int) (verbs.DriverXRCD, error) {
	if c.dev.spec.streams {
		return nil, notOverStreams("XRC")
	}
	d, err := c.openDomain(fd, flags)
	if err != nil {
		return nil, err
	}
	return &xrcDomain{d, c}, nil
}

// Close releases the domain.
func (x *xrcDomain) Close() error {
	x.close()
	return nil
}

// xrcSRQ is a DriverSRQ of type XRC.
type xrcSRQ struct {
	*srq
	in *engine.XRCSRQ
}

// createXRCSRQ makes an SRQ of an XRC domain.
func (p *pd) createXRCSRQ(init *verbs.SRQInitAttr, up verbs.DriverEvents) (verbs.DriverSRQ, error) {
	if err := checkCQs(init.CQ); err != nil {
		return nil, err
	}
	x, c := driver.Of[*xrcDomain](init.XRCD), cqOf(init.CQ)
	s := p.newSRQ("XRC", c, &init.Attr, up)
	in, err := x.XRCD.CreateSRQ(s.q, &c.CQ, func() { up.Event(verbs.EventSRQErr) })
	if err != nil {
		_ = s.Destroy()
		return nil, verbsError("", err)
	}
	return &xrcSRQ{s, in}, nil
}

// SRQN returns the SRQ's number.
func (s *xrcSRQ) SRQN() uint32 { return s.in.Num }

// Destroy removes the SRQ from its domain. Nothing touches the memory of its receives afterwards.
func (s *xrcSRQ) Destroy() error {
	s.in.Destroy()
	return s.srq.Destroy()
}

// target is an XRC_RECV QP, shared by its handles.
type target struct {
	qp
	in   *domain
	home *home // nil if no other process can have the domain

	changing sync.Mutex // held while attributes are checked and taken; taken before all other locks

	handlesMu sync.Mutex // guards handles; taken after all other locks
	// +checklocks:handlesMu
	handles []*handle
}

// handle is a DriverQP: one program's handle of an XRC_RECV QP.
type handle struct {
	*target
	up verbs.DriverQPEvents
}

// CreateQP makes an XRC_RECV QP.
func (x *xrcDomain) CreateQP(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	t := &target{in: x.domain}
	t.ctx = x.ctx
	in := engine.QPInit{Type: transport.Type(init.Type), XRCD: x.XRCD, Regions: x.ctx.regions, Up: t}
	if x.member != nil {
		t.home = &home{t: t}
		in.Relay = t.home
	}
	if err := x.ctx.eng.CreateQP(&t.QP, in); err != nil {
		return nil, verbsError("", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.targets[t.Num()] = t
	return t.newHandle(up), nil
}

// OpenQP makes a handle of an existing XRC_RECV QP.
func (x *xrcDomain) OpenQP(qpn uint32, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	if h := x.openHere(qpn, up); h != nil {
		return h, nil
	}
	if q := x.openElsewhere(qpn, up); q != nil {
		return q, nil
	}
	return nil, fail(verbs.EINVAL, "QPN 0x%06x: not an XRC_RECV QP of the domain", qpn)
}

// openHere makes a handle of a QP of this process, nil if it has none of this number.
func (d *domain) openHere(qpn uint32, up verbs.DriverQPEvents) *handle {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.targets[qpn]; t != nil {
		return t.newHandle(up)
	}
	return nil
}

// newHandle makes a handle.
func (t *target) newHandle(up verbs.DriverQPEvents) *handle {
	h := &handle{t, up}
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	t.handles = append(t.handles, h)
	return h
}

// Event reports an event to every handle. Guests answer along the new path after a migration.
func (t *target) Event(ev transport.Event) {
	if ev == transport.EventPathMig && t.home != nil {
		t.home.attrChanged()
	}
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	for _, h := range t.handles {
		h.up.Event(verbs.EventType(ev))
	}
}

// StateChanged reports a transition that the QP made by itself to every handle.
func (t *target) StateChanged(s transport.State) {
	observeState(&t.QP, s)
	t.reportState(nil)
}

// reportState reports the current state of the QP to every handle except one. After two concurrent transitions the
// last report has the later state.
func (t *target) reportState(except *handle) {
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	for _, h := range t.handles {
		if h != except {
			h.up.StateChanged(verbs.QPState(t.State()))
		}
	}
}

// Modify changes the QP for all handles. It checks the attributes: another process may have sent them, and another
// handle may have changed the QP since package verbs checked them.
func (h *handle) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	if err := driver.CheckModify(h.ctx, h, verbs.QPTypeXRCRecv, attr, mask); err != nil {
		return err
	}
	if err := h.target.Modify(attr, mask); err != nil {
		return err
	}
	if h.home != nil {
		h.With(func(int64, *transport.QP) { h.home.attrChanged() })
	}
	h.reportState(h)
	return nil
}

// PostSend returns EINVAL: the QP has no send queue.
func (*handle) PostSend([]verbs.SendWR) (int, error) {
	return 0, fail(verbs.EINVAL, "an XRC_RECV QP has no send queue")
}

// PostRecv returns EINVAL: the QP has no receive queue.
func (*handle) PostRecv([]verbs.RecvWR) (int, error) {
	return 0, fail(verbs.EINVAL, "an XRC_RECV QP has no receive queue")
}

// Destroy removes the handle, and with the last one the QP.
func (h *handle) Destroy() error {
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	if h.drop() {
		delete(h.in.targets, h.Num())
		h.QP.Destroy()
	}
	return nil
}

// drop removes the handle and reports whether it was the last one.
func (h *handle) drop() bool {
	h.handlesMu.Lock()
	defer h.handlesMu.Unlock()
	h.handles = slices.DeleteFunc(h.handles, func(o *handle) bool { return o == h })
	return len(h.handles) == 0
}

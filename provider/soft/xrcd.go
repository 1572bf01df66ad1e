package soft

import (
	"io"
	"os"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// domains are a device's XRC domains that have a file. All contexts of the process find them here. Another process cannot
// have a domain of the same file, since nobody could receive into its memory: it is refused.
type domains struct {
	name   string // of the device, on this host
	mu     sync.Mutex
	byFile map[fileID]*domain
}

// domain is an XRC domain, which several contexts may have opened.
type domain struct {
	*engine.XRCD
	table *domains
	id    fileID
	file  io.Closer // keeps the inode, so that no other file gets its number; nil for a domain without a file
	claim io.Closer // keeps other processes away; nil where nobody can say who has a domain
	refs  int       // under table.mu

	mu      sync.Mutex         // guards what follows
	targets map[uint32]*target // the XRC_RECV QPs
}

func newDomain(t *domains, e *engine.Engine) *domain {
	return &domain{XRCD: e.NewXRCD(), table: t, refs: 1, targets: make(map[uint32]*target)}
}

// open finds or makes the domain of a file.
func (t *domains) open(e *engine.Engine, fd, flags int) (*domain, error) {
	if fd == -1 {
		return newDomain(t, e), nil
	}
	id, file, err := openInode(fd)
	if err != nil {
		return nil, verbsError("the file of the XRC domain", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.byFile[id]
	switch {
	case d != nil && flags&os.O_EXCL != 0:
		err = fail(verbs.EINVAL, "the file has an XRC domain already, which O_EXCL does not allow")
	case d != nil:
		d.refs++
	default:
		claim, cerr := t.claim(id, flags)
		if cerr != nil {
			err = cerr
			break
		}
		d = newDomain(t, e)
		d.id, d.file, d.claim = id, file, claim
		if t.byFile == nil {
			t.byFile = make(map[fileID]*domain)
		}
		t.byFile[id] = d
		return d, nil
	}
	_ = file.Close()
	return d, err
}

// claim makes this process the one that has the domain of a file of which it has none yet.
func (t *domains) claim(id fileID, flags int) (io.Closer, error) {
	c, taken := claimFile(t.name, id)
	switch {
	case taken && flags&os.O_EXCL != 0:
		return nil, fail(verbs.EINVAL, "another process has the XRC domain of the file already, which O_EXCL does not allow")
	case taken:
		return nil, fail(verbs.EOPNOTSUPP, "another process has the XRC domain of the file; the software device cannot share a domain between processes")
	case flags&os.O_CREATE == 0:
		if c != nil {
			_ = c.Close()
		}
		return nil, fail(verbs.EAGAIN, "the file has no XRC domain yet; O_CREATE makes one")
	}
	return c, nil
}

// close gives one reference back.
func (d *domain) close() {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if d.refs--; d.refs == 0 && d.file != nil {
		delete(d.table.byFile, d.id)
		_ = d.file.Close()
		if d.claim != nil {
			_ = d.claim.Close()
		}
	}
}

// xrcd is an XRCDDriver: a domain as one context has opened it.
type xrcd struct {
	*domain
	ctx *context
}

// OpenXRCD opens an XRC domain.
func (c *context) OpenXRCD(fd, flags int) (verbs.XRCDDriver, error) {
	d, err := c.dev.domains.open(c.eng, fd, flags)
	if err != nil {
		return nil, err
	}
	return &xrcd{d, c}, nil
}

// Close gives the domain up.
func (x *xrcd) Close() error {
	x.close()
	return nil
}

// xrcSRQ is an XRCSRQDriver.
type xrcSRQ struct {
	*srq
	in *engine.XRCSRQ
}

// CreateSRQ makes an SRQ of the domain.
func (x *xrcd) CreateSRQ(p verbs.PDDriver, c verbs.CQDriver, init *verbs.SRQAttr, up verbs.SRQUpcalls) (verbs.XRCSRQDriver, error) {
	if err := working(c); err != nil {
		return nil, err
	}
	s := p.(*pd).newSRQ("XRC", c.(*cq), init, up)
	in, err := x.XRCD.CreateSRQ(s.q, c.(*cq).CQ, func() { up.Event(verbs.EventSRQErr) })
	if err != nil {
		_ = s.Destroy()
		return nil, verbsError("", err)
	}
	return &xrcSRQ{s, in}, nil
}

// SRQN is the SRQ's number.
func (s *xrcSRQ) SRQN() uint32 { return s.in.Num }

// Destroy takes the SRQ out of its domain. Nothing touches its receives' memory afterwards.
func (s *xrcSRQ) Destroy() error {
	s.in.Destroy()
	return s.srq.Destroy()
}

// target is an XRC_RECV QP, shared by its handles.
type target struct {
	qp
	in *domain

	handlesMu sync.Mutex // the last lock to be taken
	handles   []*handle
}

// handle is a QPDriver: an XRC_RECV QP as one program has made or opened it.
type handle struct {
	*target
	up verbs.QPUpcalls
}

// CreateQP makes an XRC_RECV QP.
func (x *xrcd) CreateQP(init *verbs.QPDriverInit, up verbs.QPUpcalls) (verbs.QPDriver, error) {
	t := &target{in: x.domain}
	t.ctx = x.ctx
	var err error
	t.QP, err = x.ctx.eng.CreateQP(engine.QPInit{Type: transport.Type(init.Type), XRCD: x.XRCD, Regions: x.ctx.regions, Up: t})
	if err != nil {
		return nil, verbsError("", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.targets[t.Num()] = t
	return t.newHandle(up), nil
}

// OpenQP makes another handle of an XRC_RECV QP.
func (x *xrcd) OpenQP(qpn uint32, up verbs.QPUpcalls) (verbs.QPDriver, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.targets[qpn]
	if t == nil {
		return nil, fail(verbs.EINVAL, "the XRC domain has no XRC_RECV QP 0x%06x", qpn)
	}
	return t.newHandle(up), nil
}

func (t *target) newHandle(up verbs.QPUpcalls) *handle {
	h := &handle{t, up}
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	t.handles = append(t.handles, h)
	return h
}

// Event passes an event to every handle.
func (t *target) Event(ev transport.Event) {
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	for _, h := range t.handles {
		h.up.Event(verbs.EventType(ev))
	}
}

// StateChanged tells every handle that the QP moved by itself.
func (t *target) StateChanged(transport.State) { t.tell(nil) }

// tell tells every handle but one the state that the QP is in now: of two moves that are told at the same time, the later one is
// told last.
func (t *target) tell(except *handle) {
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	for _, h := range t.handles {
		if h != except {
			h.up.StateChanged(verbs.QPState(t.State()))
		}
	}
}

// Modify changes the QP for all handles.
func (h *handle) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := h.target.Modify(attr, mask); err != nil {
		return err
	}
	h.tell(h)
	return nil
}

// PostSend cannot be: the QP has no send queue.
func (*handle) PostSend([]verbs.SendWR) (int, error) {
	return 0, fail(verbs.EINVAL, "an XRC_RECV QP has no send queue")
}

// PostRecv cannot be: the QP has no receive queue.
func (*handle) PostRecv([]verbs.RecvWR) (int, error) {
	return 0, fail(verbs.EINVAL, "an XRC_RECV QP has no receive queue")
}

// Destroy ends the handle, and with the last one the QP.
func (h *handle) Destroy() error {
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	if h.drop() {
		delete(h.in.targets, h.Num())
		h.QP.Destroy()
	}
	return nil
}

// drop takes the handle away and tells whether it was the last one.
func (h *handle) drop() bool {
	h.handlesMu.Lock()
	defer h.handlesMu.Unlock()
	h.handles = slices.DeleteFunc(h.handles, func(o *handle) bool { return o == h })
	return len(h.handles) == 0
}

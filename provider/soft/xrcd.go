package soft

import (
	"io"
	"os"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// domains are a device's XRC domains with a file, shared by all contexts of the process. Another process cannot have
// a domain of the same file, since a QP of one process cannot receive into another's memory.
type domains struct {
	name string     // of the device, on this host
	mu   sync.Mutex // guards byFile, and refs of each domain
	// +checklocks:mu
	byFile map[fileID]*domain
}

// domain is an XRC domain, which several contexts may have opened.
type domain struct {
	*engine.XRCD
	table *domains
	id    fileID
	file  io.Closer // keeps the inode, so that its number is not reused; nil for a domain without a file
	claim io.Closer // excludes other processes; nil where the system cannot
	refs  int       // guarded by table.mu

	mu sync.Mutex // guards targets
	// +checklocks:mu
	targets map[uint32]*target // the XRC_RECV QPs by number
}

// newDomain makes a domain without a file.
func newDomain(t *domains, e *engine.Engine) *domain {
	return &domain{XRCD: e.NewXRCD(), table: t, refs: 1, targets: make(map[uint32]*target)}
}

// open returns the domain of a file, which it makes if flags allow it.
func (t *domains) open(e *engine.Engine, fd, flags int) (*domain, error) {
	if fd == -1 {
		return newDomain(t, e), nil
	}
	id, file, err := openInode(fd)
	if err != nil {
		return nil, verbsError("file of the XRC domain", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.byFile[id]
	switch {
	case d != nil && flags&os.O_EXCL != 0:
		err = fail(verbs.EINVAL, "O_EXCL: the file already has an XRC domain")
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

// claim reserves the domain of a file for this process, which has none of it yet.
func (t *domains) claim(id fileID, flags int) (io.Closer, error) {
	c, taken := claimFile(t.name, id)
	switch {
	case taken && flags&os.O_EXCL != 0:
		return nil, fail(verbs.EINVAL, "O_EXCL: another process has the XRC domain of the file")
	case taken:
		return nil, fail(verbs.EOPNOTSUPP,
			"another process has the XRC domain of the file; the software device cannot share a domain between processes")
	case flags&os.O_CREATE == 0:
		if c != nil {
			_ = c.Close()
		}
		return nil, fail(verbs.EAGAIN, "the file has no XRC domain; O_CREATE makes one")
	}
	return c, nil
}

// close releases one reference.
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

// xrcd is a DriverXRCD: one context's reference to a domain.
type xrcd struct {
	*domain
	ctx *deviceContext
}

// OpenXRCD opens an XRC domain.
func (c *deviceContext) OpenXRCD(fd, flags int) (verbs.DriverXRCD, error) {
	if c.dev.spec.streams {
		return nil, notOverStreams("XRC")
	}
	d, err := c.dev.domains.open(c.eng, fd, flags)
	if err != nil {
		return nil, err
	}
	return &xrcd{d, c}, nil
}

// Close releases the domain.
func (x *xrcd) Close() error {
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
	x, c := driver.Of[*xrcd](init.XRCD), cqOf(init.CQ)
	s := p.newSRQ("XRC", c, &init.Attr, up)
	in, err := x.XRCD.CreateSRQ(s.q, c.CQ, func() { up.Event(verbs.EventSRQErr) })
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
	in *domain

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
func (x *xrcd) CreateQP(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	t := &target{in: x.domain}
	t.ctx = x.ctx
	var err error
	t.QP, err = x.ctx.eng.CreateQP(engine.QPInit{Type: transport.Type(init.Type), XRCD: x.XRCD, Regions: x.ctx.regions,
		Up: t})
	if err != nil {
		return nil, verbsError("", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.targets[t.Num()] = t
	return t.newHandle(up), nil
}

// OpenQP makes a handle of an existing XRC_RECV QP.
func (x *xrcd) OpenQP(qpn uint32, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.targets[qpn]
	if t == nil {
		return nil, fail(verbs.EINVAL, "QPN 0x%06x: not an XRC_RECV QP of the domain", qpn)
	}
	return t.newHandle(up), nil
}

// newHandle makes a handle.
func (t *target) newHandle(up verbs.DriverQPEvents) *handle {
	h := &handle{t, up}
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	t.handles = append(t.handles, h)
	return h
}

// Event reports an event to every handle.
func (t *target) Event(ev transport.Event) {
	t.handlesMu.Lock()
	defer t.handlesMu.Unlock()
	for _, h := range t.handles {
		h.up.Event(verbs.EventType(ev))
	}
}

// StateChanged reports a transition that the QP made by itself to every handle.
func (t *target) StateChanged(s transport.State) {
	observeState(t.QP, s)
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

// Modify changes the QP for all handles.
func (h *handle) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := h.target.Modify(attr, mask); err != nil {
		return err
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

package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The fake driver records calls and returns results that the test sets. It moves no data.

type fakeProvider struct {
	name    string
	devices []DriverDevice
	err     error
	listed  int // calls of Devices
}

func (p *fakeProvider) Name() string { return p.name }

func (p *fakeProvider) Devices() ([]DriverDevice, error) {
	p.listed++
	return p.devices, p.err
}

// withProviders replaces the registered providers for the duration of a test.
func withProviders(t testing.TB, list ...DriverProvider) {
	providers.mu.Lock()
	old := providers.list
	providers.list = list
	providers.mu.Unlock()
	t.Cleanup(func() {
		providers.mu.Lock()
		providers.list = old
		providers.mu.Unlock()
	})
}

//conformance:fake
type fakeDevice struct {
	info    DriverInfo
	attr    DeviceAttr
	ports   []PortAttr // ports[0] is port 1
	gids    []GIDEntry
	pkeys   []uint16
	vectors int
	openErr error
	opened  []*fakeContext
}

func (d *fakeDevice) Info() DriverInfo { return d.info }

func (d *fakeDevice) Open(up DriverContextEvents) (DriverContext, error) {
	if d.openErr != nil {
		return nil, d.openErr
	}
	ctx := &fakeContext{dev: d, up: up, fail: map[string]error{}, nextQPN: 0x11, nextKey: 0x100}
	d.opened = append(d.opened, ctx)
	return ctx, nil
}

// newFakeDevice returns a RoCE device with two ports and small limits, which tests can reach.
func newFakeDevice() *fakeDevice {
	port := PortAttr{
		State: PortActive, MaxMTU: MTU4096, ActiveMTU: MTU1024, GIDTblLen: 16, PKeyTblLen: 2, LinkLayer: LinkLayerEthernet,
		Flags: QPFGRHRequired, MaxMsgSz: 1 << 31,
	}
	return &fakeDevice{
		info: DriverInfo{Name: "vrb_fake0", GUID: GUID{2, 0, 0, 0xff, 0xfe, 0, 0, 1}, NodeType: NodeCA,
			Transport: TransportIB, Interface: "fake0"},
		attr: DeviceAttr{
			NodeGUID: GUID{2, 0, 0, 0xff, 0xfe, 0, 0, 1}, MaxMRSize: 1 << 30, MaxQP: 100, MaxQPWR: 128, MaxSGE: 8, MaxSGERd: 4,
			MaxCQ: 100, MaxCQE: 4096, MaxMR: 100, MaxPD: 100, MaxQPRdAtom: 16, MaxQPInitRdAtom: 8, AtomicCap: AtomicHCA,
			MaxMcastGrp: 8, MaxMcastQPAttach: 8, MaxTotalMcastQPAttach: 64, MaxAH: 100, MaxSRQ: 100, MaxSRQWR: 64, MaxSRQSGE: 4,
			MaxPKeys: 2, PhysPortCnt: 2, DeviceCapFlags: DeviceSRQResize | DeviceAutoPathMig | DeviceChangePhyPort,
			MaxDMSize: 1000, ODPCaps: ODPCaps{General: ODPSupport}, CQModCaps: CQModerationCaps{MaxCQCount: 100,
				MaxCQPeriod: 200},
			TSOCaps:          TSOCaps{MaxTSO: 1000, SupportedQPTs: 1<<QPTypeRawPacket | 1<<QPTypeUD},
			PacketPacingCaps: PacketPacingCaps{QPRateLimitMin: 10, QPRateLimitMax: 1000, SupportedQPTs: 1 << QPTypeRawPacket},
			RSSCaps: RSSCaps{
				SupportedQPTs: 1 << QPTypeRawPacket, MaxRWQIndirectionTables: 10, MaxRWQIndirectionTableSize: 8,
				RxHashFieldsMask: uint64(rxHashAll), RxHashFunction: 1,
			},
		},
		ports: []PortAttr{port, port},
		gids: []GIDEntry{
			{GID: mustGID("fe80::ff:fe00:1"), Type: GIDTypeRoCEv2, NetDev: "fake0"},
			{GID: mustGID("::ffff:192.0.2.1"), Type: GIDTypeRoCEv2, NetDev: "fake0"},
			{},
			{GID: mustGID("2001:db8::1"), Type: GIDTypeRoCEv2, NetDev: "fake0"},
		},
		pkeys:   []uint16{0xffff, 0x8001},
		vectors: 2,
	}
}

func mustGID(s string) GID {
	g, err := ParseGID(s)
	if err != nil {
		panic(err)
	}
	return g
}

type fakeContext struct {
	DriverUnsupported
	dev *fakeDevice
	up  DriverContextEvents

	mu      sync.Mutex
	calls   []string
	fail    map[string]error // results of the calls with these names
	nextQPN uint32
	nextKey uint32
}

// call records a call and returns its result.
func (c *fakeContext) call(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, name)
	return c.fail[name]
}

func (c *fakeContext) called(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.calls, name)
}

func (c *fakeContext) Close() error        { return c.call("Close") }
func (c *fakeContext) NumCompVectors() int { return c.dev.vectors }

func (c *fakeContext) QueryDevice() (DeviceAttr, error) { return c.dev.attr, c.call("QueryDevice") }

func (c *fakeContext) QueryPort(port uint8) (PortAttr, error) {
	return c.dev.ports[port-1], c.call("QueryPort")
}

func (c *fakeContext) GIDTable(uint8) ([]GIDEntry, error) {
	return slices.Clone(c.dev.gids), c.call("GIDTable")
}

func (c *fakeContext) PKeyTable(uint8) ([]uint16, error) { return c.dev.pkeys, c.call("PKeyTable") }

func (c *fakeContext) SelectGID(_ uint8, peer netip.Addr) (GIDChoice, error) {
	for i, e := range c.dev.gids {
		if !e.GID.IsZero() && e.GID.Addr().Is4() == peer.Is4() {
			return GIDChoice{Index: i, GID: e.GID, Reason: "same family"}, c.call("SelectGID")
		}
	}
	return GIDChoice{}, syscall.ENETUNREACH
}

func (c *fakeContext) AllocPD() (DriverPD, error) { return &fakePD{c}, c.call("AllocPD") }

func (c *fakeContext) CreateCQ(cqe int, opts *CQOptions, up DriverCQEvents) (DriverCQ, error) {
	return &fakeCQ{fakeContext: c, up: up, cap: cqe + cqe%2, opts: *opts}, c.call("CreateCQ")
}

type fakePD struct{ *fakeContext }

func (p *fakePD) Dealloc() error { return p.call("Dealloc") }

func (p *fakePD) RegMR(buf []byte, iova uint64, access AccessFlags) (DriverMR, error) {
	err := p.call("RegMR")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextKey += 0x100
	return &fakeMR{fakeContext: p.fakeContext, pd: p, buf: buf, iova: iova, access: access, key: p.nextKey}, err
}

func (p *fakePD) CreateAH(attr AHAttr) (DriverHandle, error) {
	return &fakeAH{p.fakeContext, attr}, p.call("CreateAH")
}

func (p *fakePD) CreateSRQ(init *SRQInitAttr, up DriverEvents) (DriverSRQ, error) {
	name := map[SRQType]string{SRQTypeBasic: "CreateSRQ", SRQTypeXRC: "CreateXRCSRQ", SRQTypeTM: "CreateTMSRQ"}[init.Type]
	init.Attr.MaxWR += init.Attr.MaxWR % 2
	return &fakeSRQ{fakeContext: p.fakeContext, up: up, attr: init.Attr, init: *init, pd: p}, p.call(name)
}

func (p *fakePD) CreateQP(init *QPInitAttr, up DriverQPEvents) (DriverQP, error) {
	if init.Cap.MaxInlineData > 256 {
		return nil, fmt.Errorf("inline data of %d bytes: %w", init.Cap.MaxInlineData, syscall.EINVAL)
	}
	asked := *init
	init.Cap.MaxSendWR += init.Cap.MaxSendWR % 2
	err := p.call("CreateQP")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextQPN++
	return &fakeQP{fakeContext: p.fakeContext, up: up, init: asked, qpn: p.nextQPN}, err
}

type fakeMR struct {
	*fakeContext
	pd     DriverPD
	buf    []byte
	iova   uint64
	access AccessFlags
	key    uint32
}

func (m *fakeMR) LKey() uint32 { return m.key }
func (m *fakeMR) RKey() uint32 { return m.key + 1 }

func (m *fakeMR) Rereg(pd DriverPD, buf []byte, iova uint64, access *AccessFlags) error {
	if err := m.call("Rereg"); err != nil {
		return err
	}
	m.pd, m.buf, m.iova, m.access, m.key = pd, buf, iova, *access, m.key+0x10
	return nil
}

func (m *fakeMR) Dereg() error { return m.call("Dereg") }

type fakeAH struct {
	*fakeContext
	attr AHAttr
}

func (a *fakeAH) Destroy() error { return a.call("DestroyAH") }

type fakeCQ struct {
	*fakeContext
	up         DriverCQEvents
	cap        int
	opts       CQOptions
	ex         []WC   // for PollOne
	more       []bool // of each PollOne
	armed      []bool // solicitedOnly of each ReqNotify
	wcs        []WC
	moderation ModerateCQ
}

func (c *fakeCQ) Cap() int { return c.cap }

func (c *fakeCQ) Poll(wcs []WC) (int, error) {
	if err := c.fail["Poll"]; err != nil {
		return 0, err
	}
	n := copy(wcs, c.wcs)
	if c.opts.WCFlags&^WCStandardFlags == 0 { // with any of them the driver may fill more than are requested
		for i := range wcs[:n] {
			wcs[i].keepExtended(0)
		}
	}
	c.wcs = c.wcs[n:]
	return n, nil
}

func (c *fakeCQ) ReqNotify(solicitedOnly bool) error {
	c.armed = append(c.armed, solicitedOnly)
	return c.call("ReqNotify")
}

func (c *fakeCQ) Resize(cqe int) error {
	if err := c.call("Resize"); err != nil {
		return err
	}
	c.cap = cqe + cqe%2
	return nil
}

func (c *fakeCQ) Moderate(m ModerateCQ) error { c.moderation = m; return c.call("Moderate") }
func (c *fakeCQ) Destroy() error              { return c.call("DestroyCQ") }

type fakeSRQ struct {
	*fakeContext
	up     DriverEvents
	init   SRQInitAttr
	pd     DriverPD
	attr   SRQAttr
	posted []uint64 // WRIDs
	ops    []uint64 // WRIDs of PostOps
	room   int      // of each; 0: no bound
}

func (s *fakeSRQ) SRQN() uint32 { return 0x123456 }

func (s *fakeSRQ) PostRecv(wrs []RecvWR) (int, error) { return fakePostRecv(&s.posted, s.room, wrs) }

func fakePostRecv(posted *[]uint64, room int, wrs []RecvWR) (int, error) {
	for i := range wrs {
		if room > 0 && len(*posted) >= room {
			return i, syscall.ENOMEM
		}
		*posted = append(*posted, wrs[i].WRID)
	}
	return len(wrs), nil
}

func (s *fakeSRQ) Modify(attr *SRQAttr, mask SRQAttrMask) error {
	if err := s.call("ModifySRQ"); err != nil {
		return err
	}
	if mask&SRQAttrMaxWR != 0 {
		attr.MaxWR += attr.MaxWR % 2
		s.attr.MaxWR, s.attr.MaxSGE = attr.MaxWR, attr.MaxSGE
	}
	if mask&SRQAttrLimit != 0 {
		s.attr.SRQLimit = attr.SRQLimit
	}
	return nil
}

func (s *fakeSRQ) Query() (SRQAttr, error) { return s.attr, s.call("QuerySRQ") }
func (s *fakeSRQ) Destroy() error          { return s.call("DestroySRQ") }

type fakeQP struct {
	*fakeContext
	up       DriverQPEvents
	init     QPInitAttr
	qpn      uint32
	attr     QPAttr
	mask     QPAttrMask // of the last Modify
	modifies int
	onModify func(*QPAttr, QPAttrMask) error
	sent     []uint64 // WRIDs
	all      []SendWR // of PostSendAll
	received []uint64
	room     int // of each queue; 0: no bound
	onSend   func([]SendWR)
	groups   []GID
	lid      uint16 // of the last AttachMcast or DetachMcast
}

func (q *fakeQP) QPN() uint32 { return q.qpn }

func (q *fakeQP) Modify(attr *QPAttr, mask QPAttrMask) error {
	if q.onModify != nil {
		if err := q.onModify(attr, mask); err != nil {
			return err
		}
	}
	if err := q.fail["ModifyQP"]; err != nil {
		return err
	}
	q.modifies++
	q.attr, q.mask = *attr, mask
	return nil
}

func (q *fakeQP) Query() (QPAttr, error) { return q.attr, q.call("QueryQP") }

func (q *fakeQP) PostSend(wrs []SendWR) (int, error) {
	if q.onSend != nil {
		q.onSend(wrs)
	}
	for i := range wrs {
		if q.room > 0 && len(q.sent) >= q.room {
			return i, syscall.ENOMEM
		}
		q.sent = append(q.sent, wrs[i].WRID)
	}
	return len(wrs), nil
}

func (q *fakeQP) PostRecv(wrs []RecvWR) (int, error) {
	return fakePostRecv(&q.received, q.room, wrs)
}

func (q *fakeQP) AttachMcast(gid GID, lid uint16) error {
	q.lid = lid
	if err := q.call("AttachMcast"); err != nil {
		return err
	}
	q.groups = append(q.groups, gid)
	return nil
}

func (q *fakeQP) DetachMcast(gid GID, lid uint16) error {
	q.lid = lid
	if err := q.call("DetachMcast"); err != nil {
		return err
	}
	q.groups = slices.DeleteFunc(q.groups, func(g GID) bool { return g == gid })
	return nil
}

func (q *fakeQP) Destroy() error { return q.call("DestroyQP") }

// Constructors for tests.

func openFake(t testing.TB) (*Context, *fakeContext) {
	t.Helper()
	return openDevice(t, newFakeDevice())
}

func openDevice(t testing.TB, dev *fakeDevice) (*Context, *fakeContext) {
	t.Helper()
	vctx, err := (&Device{drv: dev, info: dev.Info()}).Open()
	if err != nil {
		t.Fatal(err)
	}
	return vctx, dev.opened[len(dev.opened)-1]
}

func newPD(t testing.TB, vctx *Context) *PD {
	t.Helper()
	return must(vctx.AllocPD())(t)
}

func newCQ(t testing.TB, vctx *Context, opts *CQOptions) (*CQ, *fakeCQ) {
	t.Helper()
	cq := must(vctx.CreateCQ(16, opts))(t)
	return cq, cq.drv.(*fakeCQ)
}

func newQP(t testing.TB, pd *PD, typ QPType) (*QP, *fakeQP) {
	t.Helper()
	if typ == QPTypeXRCRecv {
		qp := must(newXRCD(t, pd.Context()).CreateQP(&QPInitAttr{Type: typ}))(t)
		return qp, qp.drv.(*fakeQP)
	}
	cq, _ := newCQ(t, pd.Context(), nil)
	qp := must(pd.CreateQP(&QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq,
		Cap: QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 2, MaxInlineData: 64}}))(t)
	return qp, qp.drv.(*fakeQP)
}

// newQPIn creates a QP and sets its state without a transition.
func newQPIn(t testing.TB, typ QPType, s QPState) (*QP, *fakeQP) {
	t.Helper()
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), typ)
	forceState(qp, drv, s)
	return qp, drv
}

func forceState(qp *QP, drv *fakeQP, s QPState) {
	qp.word.Store(uint64(s))
	qp.port = 1
	drv.attr.QPState, drv.attr.PortNum = s, 1
}

// must returns the result of a call that must succeed: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that an error has the errno and that its text contains all parts.
func refused(t testing.TB, err error, errno Errno, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %v", errno)
	}
	if !errors.Is(err, errno) {
		t.Fatalf("%v: not %v", err, errno)
	}
	var found Errno
	if !errors.As(err, &found) || found != errno && (!unsupported(found) || !unsupported(errno)) {
		t.Fatalf("%v: errors.As finds %v, not %v", err, found, errno)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not have %q", err, p)
		}
	}
}

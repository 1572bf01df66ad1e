package sock

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// faulty is a device on which the next call of the kind that the test says fails with EIO.
//
//conformance:fake
type faulty struct {
	verbs.DriverDevice
	call      atomic.Value // the name of the call
	pds       atomic.Int32
	mtus      []verbs.MTU         // of the ports, if it is to have others than the real device; only port 1 has addresses
	transport verbs.TransportType // if it is to be another one

	posted []string // the requests of its QPs
}

//conformance:fake
type faultyContext struct {
	verbs.DriverContext
	of *faulty
}

//conformance:fake
type faultyPD struct {
	verbs.DriverPD
	of *faulty
}

func (d *faulty) fails(call string) error {
	if d.call.CompareAndSwap(call, "") {
		return syscall.EIO
	}
	return nil
}

func (d *faulty) Info() verbs.DriverInfo {
	info := d.DriverDevice.Info()
	if d.transport != 0 {
		info.Transport = d.transport
	}
	return info
}

func (d *faulty) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return faultyContext{c, d}, err
}

func (c faultyContext) QueryDevice() (verbs.DeviceAttr, error) {
	attr, err := c.DriverContext.QueryDevice()
	if c.of.mtus != nil {
		attr.PhysPortCnt = uint8(len(c.of.mtus))
	}
	return attr, err
}

func (c faultyContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	attr, err := c.DriverContext.QueryPort(1)
	if c.of.mtus != nil {
		attr.ActiveMTU = c.of.mtus[port-1]
	}
	return attr, errors.Join(err, c.of.fails("query_port"))
}

func (c faultyContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	if port > 1 {
		return nil, nil
	}
	table, err := c.DriverContext.GIDTable(port)
	return table, errors.Join(err, c.of.fails("gid_table"))
}

func (c faultyContext) CreateCQ(n int, o *verbs.CQOptions, up verbs.DriverCQEvents) (verbs.DriverCQ, error) {
	if err := c.of.fails("create_cq"); err != nil {
		return nil, err
	}
	return c.DriverContext.CreateCQ(n, o, up)
}

func (c faultyContext) AllocPD() (verbs.DriverPD, error) {
	pd, err := c.DriverContext.AllocPD()
	if c.of.pds.Add(1) == 1 { // of QP 1
		return pd, err
	}
	return faultyPD{pd, c.of}, err
}

func (pd faultyPD) RegMR(buf []byte, iova uint64, access verbs.AccessFlags) (verbs.DriverMR, error) {
	if err := pd.of.fails("reg_mr"); err != nil {
		return nil, err
	}
	return pd.DriverPD.RegMR(buf, iova, access)
}

func (pd faultyPD) CreateAH(attr verbs.AHAttr) (verbs.DriverHandle, error) {
	if err := pd.of.fails("create_ah"); err != nil {
		return nil, err
	}
	return pd.DriverPD.CreateAH(attr)
}

func (pd faultyPD) CreateQP(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	if err := pd.of.fails("create_qp"); err != nil {
		return nil, err
	}
	q, err := pd.DriverPD.CreateQP(init, up)
	return faultyQP{q, pd.of}, err
}

// faultyQP posts nothing: it notes the requests.
//
//conformance:fake
type faultyQP struct {
	verbs.DriverQP
	of *faulty
}

func (q faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for _, wr := range wrs {
		q.of.posted = append(q.of.posted, fmt.Sprintf("%v %#x %q %#x to %#x with %#x", wr.Opcode, wr.WRID, wr.Inline,
			wr.ImmData, wr.RemoteAddr, wr.RKey))
	}
	return len(wrs), q.of.fails("post_send")
}

// faultyHost is a host with a faulty device that has worked so far, and an ID that is bound to it.
type faultyHost struct {
	*faulty
	host *rdmacm.Host
	id   *rdmacm.ID
}

func onFaulty(t *testing.T, mtus ...verbs.MTU) *faultyHost {
	t.Helper()
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
	h := &faultyHost{faulty: &faulty{DriverDevice: driver.Of[verbs.DriverDevice](dev), mtus: mtus}}
	h.host = rdmacm.NewHost(driver.NewDevice(h.faulty))
	h.id = must(h.host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, h.id.BindAddr(ownAddr))
	return h
}

// end closes the ID, if the test has not done so, and the host. It fails the test if anything else is left.
func (h *faultyHost) end(t *testing.T) {
	t.Helper()
	_ = h.id.Close()
	ok(t, h.host.Close())
}

// A datagram socket whose device does not give it all that its QP needs has no QP, and leaves nothing.
func TestFailuresOfADatagramQP(t *testing.T) {
	h := onFaulty(t)
	for _, call := range []string{"query_port", "create_cq", "reg_mr", "create_qp"} {
		h.call.Store(call)
		if q, err := newDatagramQP(h.host, ownAddr.Addr(), 1); q != nil || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s fails: a QP %v, %v", call, q != nil, err)
		}
	}
	h.call.Store("")
	must(newDatagramQP(h.host, ownAddr.Addr(), 1))(t).close()
	h.end(t)
}

// A stream whose device does not give it all that it needs fails with the device's error, and leaves nothing.
func TestFailuresOfAStreamsDevice(t *testing.T) {
	for _, call := range []string{"create_cq", "reg_mr", "create_qp", ""} {
		h := onFaulty(t)
		st := NewStream(JoinHub(h.host), Options{}.WithDefaults())
		st.id = h.id
		h.call.Store(call)
		st.mu.Lock()
		if err := st.setUp(); call != "" && !errors.Is(err, syscall.EIO) || call == "" && err != nil {
			t.Errorf("%q fails: %v", call, err)
		}
		st.mu.Unlock()
		st.Close(0)
		h.end(t)
	}
}

// The MTU of a device's QPs is the smallest of its ports.
func TestSmallestMTUOfTheDevice(t *testing.T) {
	for _, mtus := range [][]verbs.MTU{
		{verbs.MTU1024}, {verbs.MTU4096, verbs.MTU512}, {verbs.MTU256, verbs.MTU2048},
		{verbs.MTU2048, verbs.MTU1024, verbs.MTU4096},
	} {
		h := onFaulty(t, mtus...)
		if got, err := smallestMTU(h.id.Verbs()); got != slices.Min(mtus).Bytes() || err != nil {
			t.Errorf("%v: %d, %v", mtus, got, err)
		}
		h.end(t)
	}
}

// The QP of a peer is not known while there is no address handle for it.
func TestPeerWithoutAnAddressHandle(t *testing.T) {
	h := onFaulty(t)
	q := must(newDatagramQP(h.host, ownAddr.Addr(), 1))(t)
	for call, want := range map[string]uint32{"create_ah": 0, "gid_table": 0, "": 77} {
		h.call.Store(call)
		dst := &dest{to: netip.AddrPortFrom(ownAddr.Addr(), 7), q: q}
		if dst.learn(77); (dst.ah != nil) != (want != 0) || dst.qpn != want {
			t.Errorf("%q fails: QP %d, address handle %v", call, dst.qpn, dst.ah)
		}
		dst.forget()
	}
	h.call.Store("gid_table")
	if _, err := (&dest{to: ownAddr, q: q}).path(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the way to the peer: %v", err)
	}
	q.close()
	h.end(t)
}

// Memory that the device does not register is no IO map.
func TestIOMapThatIsNotRegistered(t *testing.T) {
	h := onFaulty(t)
	st := NewStream(nil, Options{})
	st.id, st.state = h.id, streamConnected
	st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
	h.call.Store("reg_mr")
	at, err := st.IOMap(make([]byte, 8), false, 5)
	if at != -1 || !errors.Is(err, syscall.EIO) || len(st.publish.maps) != 0 {
		t.Errorf("offset %d, %v, %d maps", at, err, len(st.publish.maps))
	}
	h.end(t)
}

// A writer to IO maps posts the maps of its own side first.
func TestIOWritePostsIOMaps(t *testing.T) {
	h := onFaulty(t)
	st := NewStream(JoinHub(h.host), Options{}.WithDefaults())
	st.id = h.id
	st.mu.Lock()
	ok(t, st.setUp())
	ok(t, st.res.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // a QP in RESET takes no requests
	st.state = streamConnected
	st.m.Connect(rs.ConnData{Flags: rs.HostFlags(), Credits: 16, IOMaps: 1, Table: rs.SGE{Length: rs.TableEntries}})
	st.m.SetMap(0, rs.IOMap{})
	n, err := st.place(partsOfOne([]byte("x")), 0, &WaitMode{Nonblock: true})
	if n != 0 || err != nil || len(h.posted) != 1 || st.m.MapsPending() {
		t.Errorf("%d bytes, %v; posted %q", n, err, h.posted)
	}
	st.mu.Unlock()
	st.Close(0)
	h.end(t)
}

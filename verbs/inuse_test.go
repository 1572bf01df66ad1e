package verbs

import (
	"testing"
	"time"
)

// inUse makes calls of a driver during which another goroutine closes their object.
type inUse struct {
	t      *testing.T
	close  func() error
	ended  func() bool // the driver's object was destroyed
	result chan error  // of close
}

func newInUse(t *testing.T, close func() error, ended func() bool) *inUse {
	return &inUse{t, close, ended, make(chan error, 1)}
}

// call is the call of the driver.
func (u *inUse) call() {
	go func() { u.result <- u.close() }()
	time.Sleep(20 * time.Millisecond) // for a Close that does not wait
	if u.ended() {
		u.t.Error("the driver's object was destroyed during a call of it")
	}
}

// closed waits for the end of the object.
func (u *inUse) closed() {
	u.t.Helper()
	ok(u.t, <-u.result)
	if !u.ended() {
		u.t.Error("Close has not destroyed the driver's object")
	}
}

type countersInUse struct {
	*fakeCounters
	*inUse
}

func (c *countersInUse) Read() (packets, bytes uint64, err error) {
	c.inUse.call()
	return 0, 0, nil
}

func TestV_LIB_04_CloseOfCountersWaitsForRead(t *testing.T) {
	vctx, drv := openSteering(t)
	c := must(vctx.CreateCounters())(t)
	ok(t, c.AttachPointFlow(&CounterAttachAttr{}, nil))
	u := newInUse(t, c.Close, func() bool { return drv.called("DestroyCounters") })
	c.drv = &countersInUse{c.drv.(*fakeCounters), u}
	ok(t, c.Read(make([]uint64, 1), 0))
	u.closed()
	refused(t, c.Read(make([]uint64, 1), 0), EINVAL, "closed")
}

type eceInUse struct {
	*fakeQP
	*inUse
}

func (q *eceInUse) QueryECE() (ECE, error) {
	q.inUse.call()
	return ECE{}, nil
}

func TestV_LIB_04_CloseOfAQPWaitsForQueryECE(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSInit)
	u := newInUse(t, qp.Close, func() bool { return drv.called("DestroyQP") })
	qp.drv = &eceInUse{drv, u}
	must(qp.QueryECE())(t)
	u.closed()
}

type srqInUse struct {
	*fakeSRQ
	*inUse
}

func (s *srqInUse) PostOps(ops []OpsWR) (int, error) {
	s.inUse.call()
	return len(ops), nil
}

func TestV_LIB_04_CloseOfAnSRQWaitsForPostOps(t *testing.T) {
	pd, cq := openTM(t)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Type: SRQTypeTM, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1},
		TMCap: TMCap{1, 1}}))(t)
	drv := srq.drv.(*fakeSRQ)
	u := newInUse(t, srq.Close, func() bool { return drv.called("DestroySRQ") })
	srq.drv = &srqInUse{drv, u}
	ok(t, srq.PostOps(OpsWR{Opcode: TagDel}))
	u.closed()
}

// endedWQ and endedTable are driver's objects whose memory is freed.
type (
	endedWQ    struct{ DriverWQ }
	endedTable struct{ DriverRWQIndTable }
)

func (endedWQ) WQN() uint32    { panic("WQN after Destroy") }
func (endedTable) Num() uint32 { panic("Num after Destroy") }

// The numbers of work queues and indirection tables can be read after Close too, without the driver's object.
func TestV_LIB_05_NumbersAfterClose(t *testing.T) {
	vctx, _ := openSteering(t)
	wq, _ := newWQ(t, vctx)
	table := must(vctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}}))(t)
	n, num := wq.WQN(), table.Num()
	ok(t, table.Close())
	ok(t, wq.Close())
	wq.drv, table.drv = endedWQ{wq.drv}, endedTable{table.drv}
	if wq.WQN() != n || table.Num() != num {
		t.Errorf("WQ %d, was %d; table %d, was %d", wq.WQN(), n, table.Num(), num)
	}
}

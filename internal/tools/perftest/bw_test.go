package perftest

import (
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// Receives whose messages were lost stay in the queue. They are long enough for the next size, and are not posted
// again.
func TestReceivesOfLostMessagesServeTheNextSize(t *testing.T) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const depth, largest = 8, 1024
	dev, err := rdmatest.New(rdmatest.Config{}).NewDevice("a")
	ok(err)
	vctx, err := dev.Open()
	ok(err)
	defer vctx.Close()
	pd, err := vctx.AllocPD()
	ok(err)
	defer pd.Close()
	cq, err := vctx.CreateCQ(4*depth, nil)
	ok(err)
	defer cq.Close()
	mr, err := pd.RegMR(make([]byte, 8192), verbs.AccessLocalWrite)
	ok(err)
	defer mr.Close()
	e := &end{}
	e.qp, err = pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	ok(err)
	defer e.qp.Close()
	info, err := e.qp.LocalInfo()
	ok(err)
	ok(e.qp.Connect(info, nil))
	r := &run{
		options: &options{
			test: &test{verb: send}, typ: verbs.QPTypeUC, all: true, size: largest, numQP: 1, rxDepth: depth, postList: 1,
		},
		table: table{pd: pd, sendCQ: cq, recvCQ: cq, mr: mr, qps: []*end{e}, slot: 2 * largest},
	}
	ok(r.prepare(2)) // of these receives, none gets a message
	ok(r.prepare(largest))
	if e.rposted != depth || e.queued != depth {
		t.Errorf("%d receives for the size, %d in the queue, want %d", e.rposted, e.queued, depth)
	}
	if n := e.rsge[0].Length; n != largest {
		t.Errorf("receives of %d bytes, want %d", n, largest)
	}
}

package sock

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/verbs"
)

// Over TCP a message takes two requests: the QP and the CQ of a stream have room for both.
func TestRequestsOfAStreamOverTCP(t *testing.T) {
	p := socktest.OverTCP(t)
	id := must(p.A.Host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(netip.AddrPortFrom(p.A.Addr, 0)))
	st := NewStream(JoinHub(p.A.Host), Options{SQSize: 500, RQSize: 20}.WithDefaults())
	st.id = id
	st.mu.Lock()
	ok(t, st.setUp())
	_, init, err := st.res.qp.Query(verbs.QPAttrCap)
	if err != nil || init.Cap.MaxSendWR < 2*500 || init.Cap.MaxRecvWR < 20+spareRecvs {
		t.Errorf("room for %d requests and %d receives, %v", init.Cap.MaxSendWR, init.Cap.MaxRecvWR, err)
	}
	if n := st.res.cq.Cap(); !st.words || n < 2*500+20+spareRecvs || st.unposted != 0 {
		t.Errorf("in message words: %v; the CQ has room for %d completions, %d receives are not posted", st.words, n,
			st.unposted)
	}
	if st.depth() != 1 {
		t.Errorf("%d READs", st.depth())
	}
	st.mu.Unlock()
	st.Close(0)
	p.Close()
}

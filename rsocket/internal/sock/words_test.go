package sock

import (
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// The receives of message words are used in turn, each with memory of its own, which the WRID names.
func TestReceivesOfMessageWords(t *testing.T) {
	id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	const count = 12 + spareRecvs
	st := NewStream(nil, Options{})
	ok(t, st.res.register(id.PD(), &Options{SendBuf: 4096, RecvBuf: 4096, RQSize: 12}, true))
	st.mu.Lock()
	next := 0
	for _, n := range []int{1, 3, 16, 17, 40, 2, 1} {
		list := st.nextRecvs(n)
		if len(list) != min(n, 16) {
			t.Fatalf("%d receives, want %d", len(list), n)
		}
		for _, wr := range list {
			want := st.res.mrs[recvsMR].SGE(next*wordLen, wordLen)
			if wr.WRID != uint64(next*wordLen) || len(wr.SGList) != 1 || wr.SGList[0] != want {
				t.Errorf("receive %d: %+v, want %+v", next, wr, want)
			}
			next = (next + 1) % count
		}
	}
	kept := st.res.words
	if st.nextRecvs(1); st.res.words != kept {
		t.Error("the receives are made anew")
	}
	st.mu.Unlock()
	for _, mr := range st.res.mrs {
		if mr != nil {
			ok(t, mr.Close())
		}
	}
	st.res.free()
	ok(t, id.Close())
}

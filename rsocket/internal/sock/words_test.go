package sock

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
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

// A message is one request, a WRITE with immediate data. Over TCP it is a WRITE of the data, if there is any, and a
// SEND of the message word, whose completion counts.
func TestRequestsOfAMessage(t *testing.T) {
	h := onFaulty(t)
	st := NewStream(JoinHub(h.host), Options{}.WithDefaults())
	st.id = h.id
	st.mu.Lock()
	ok(t, st.setUp())
	ok(t, st.res.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // a QP in RESET takes no requests
	st.state = streamConnected
	immediate, write := verbs.WRRDMAWriteWithImm, verbs.WRRDMAWrite
	word := string(binary.NativeEndian.AppendUint32(nil, 0x12345678))
	send := fmt.Sprintf("%v 0x77 %q 0x0 to 0x0 with 0x0", verbs.WRSend, word)
	for _, c := range []struct {
		words bool
		op    verbs.WROpcode
		data  string
		want  []string
	}{
		{false, immediate, "", []string{fmt.Sprintf(`%v 0x77 "" 0x12345678 to 0x5 with 0x6`, immediate)}},
		{false, immediate, "d", []string{fmt.Sprintf(`%v 0x77 "d" 0x12345678 to 0x5 with 0x6`, immediate)}},
		{true, immediate, "", []string{send}},
		{true, immediate, "d", []string{fmt.Sprintf(`%v 0x0 "d" 0x0 to 0x5 with 0x6`, write), send}},
		{true, write, "d", []string{fmt.Sprintf(`%v 0x77 "d" 0x12345678 to 0x5 with 0x6`, write)}},
	} {
		h.posted, st.sentOnce, st.words = nil, false, c.words
		st.postMessage(&verbs.SendWR{
			WRID: 0x77, Opcode: c.op, Flags: verbs.SendInline, Inline: []byte(c.data), ImmData: 0x12345678, RemoteAddr: 5,
			RKey: 6,
		})
		if !slices.Equal(h.posted, c.want) || !st.sentOnce || st.state != streamConnected {
			t.Errorf("%+v: %q", c, h.posted)
		}
	}
	st.mu.Unlock()
	st.Close(0)
	h.end(t)
}

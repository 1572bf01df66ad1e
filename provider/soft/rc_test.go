package soft_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// onFabric is the mem network on a fabric of the test.
func onFabric(f *mem.Fabric) *network {
	n := networks[0]
	n.open = func(testing.TB) opener { return f.Open }
	return &n
}

func send(e *end, n int) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{e.mr.SGE(0, n)}}
}

func recv(e *end, id uint64, n int) verbs.RecvWR {
	return verbs.RecvWR{WRID: id, SGList: []verbs.SGE{e.mr.SGE(0, n)}}
}

// TestV_KC_02_ReceiverNotReady: a message without a posted receive is delayed by RNR NAKs and retried.
func TestV_KC_02_ReceiverNotReady(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		a.fill(9)
		must(t, qa.PostSend(send(a, 10000)))
		time.Sleep(5 * time.Millisecond)
		if wcs := make([]verbs.WC, 1); get(a.cq.Poll(wcs))(t) != 0 {
			t.Fatalf("the send completed without a receive: %+v", wcs[0])
		}
		must(t, qb.PostRecv(recv(b, 1, 10000)))
		a.good(1)
		b.good(1)
		if !bytes.Equal(a.buf[:10000], b.buf[:10000]) {
			t.Error("the received bytes differ")
		}
	})
}

// TestV_TR_02_ReliableDespiteLoss: a loss of a third of all packets does not lose, change or reorder a message.
func TestV_TR_02_ReliableDespiteLoss(t *testing.T) {
	f := mem.NewFabric(mem.Config{Seed: 5, Faults: lossy})
	ends := newEnds(t, onFabric(f), 2, nil)
	a, b := ends[0], ends[1]
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	const msgs, size = 50, 20000
	for i := range msgs {
		must(t, qb.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*size, size)}}))
	}
	a.fill(4)
	for i := range msgs {
		wr := send(a, 0)
		wr.WRID = uint64(i)
		wr.SGList[0] = a.mr.SGE(i*size, size)
		must(t, qa.PostSend(wr))
	}
	for i, wc := range b.good(msgs) {
		if wc.WRID != uint64(i) || wc.ByteLen != size {
			t.Fatalf("receive %d: %+v", i, wc)
		}
	}
	a.good(msgs)
	if !bytes.Equal(a.buf[:msgs*size], b.buf[:msgs*size]) {
		t.Error("the received bytes differ")
	}
}

// TestV_QPS_16_FirstFailureThenFlushed: after the retries a request to a closed peer fails with the details of the
// failure, and the others are flushed.
func TestV_QPS_16_FirstFailureThenFlushed(t *testing.T) {
	f := mem.NewFabric(mem.Config{})
	ends := newEnds(t, onFabric(f), 2, nil)
	a, b := ends[0], ends[1]
	qa, _ := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 8, RetryCnt: 2}) // 1 ms
	f.Cut(addr(0), addr(1))
	for i := range 3 {
		wr := send(a, 100)
		wr.WRID, wr.Flags = uint64(i), 0 // failures complete even without a signal
		must(t, qa.PostSend(wr))
	}
	must(t, qa.PostRecv(recv(a, 10, 100)))
	wcs := a.poll(4)
	first := wcs[0]
	if first.WRID != 0 || first.Status != verbs.WCRetryExcErr || first.Cause == nil || first.Cause.Heard ||
		first.Cause.Retries != 2 {
		t.Errorf("first completion %+v, cause %+v", first, first.Cause)
	}
	seen := map[uint64]bool{}
	for _, wc := range wcs[1:] {
		seen[wc.WRID] = true
		if wc.Status != verbs.WCWRFlushErr || !errors.Is(wc.Err(), verbs.WCRetryExcErr) {
			t.Errorf("completion %+v: %v", wc, wc.Err())
		}
	}
	if !seen[1] || !seen[2] || !seen[10] {
		t.Errorf("flushed: %v", seen)
	}
	if qa.State() != verbs.QPSErr {
		t.Errorf("the QP is in %v", qa.State())
	}
	must(t, qa.PostSend(send(a, 1))) // V-QPS-18
	must(t, qa.PostRecv(recv(a, 11, 1)))
	for _, wc := range a.poll(2) {
		if wc.Status != verbs.WCWRFlushErr {
			t.Errorf("posted in ERR: %+v", wc)
		}
	}
}

func TestV_QPS_03_ResetDiscardsAndTheQPIsReusable(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		must(t, qb.PostRecv(recv(b, 1, 100), recv(b, 2, 100)))
		must(t, qa.PostRecv(recv(a, 3, 100)))
		must(t, qa.PostSend(send(a, 10)))
		waitFor(t, "the send to complete", func() bool {
			return counter(a.dev, "tx_data_bytes") >= 10 &&
				counter(b.dev, "rx_data_bytes") >= 10
		})
		for _, q := range []*verbs.QP{qa, qb} {
			must(t, q.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		}
		for _, e := range ends {
			if wcs := make([]verbs.WC, 1); get(e.cq.Poll(wcs))(t) != 0 {
				t.Errorf("a completion from before RESET: %+v", wcs[0])
			}
		}
		join(t, qa, qb, nil)
		for i := range 64 {
			must(t, qb.PostRecv(recv(b, uint64(i), 100))) // all slots are free again
		}
		for range 64 {
			must(t, qa.PostSend(send(a, 10)))
		}
		a.good(64)
		b.good(64)
	})
}

func TestV_QPD_02_DestroyedQPsCompleteNothing(t *testing.T) {
	f := mem.NewFabric(mem.Config{})
	ends := newEnds(t, onFabric(f), 2, nil)
	a, b := ends[0], ends[1]
	qb := b.qp(verbs.QPTypeRC, nil)
	qa := get(a.pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
			MaxRecvSGE: 1},
	}))(t)
	join(t, qa, qb, &verbs.ConnectOptions{Timeout: 8})
	f.Cut(addr(0), addr(1))
	must(t, qa.PostSend(send(a, 100)))
	must(t, qa.PostRecv(recv(a, 1, 1)))
	must(t, qa.Close())
	f.Heal(addr(0), addr(1))
	time.Sleep(20 * time.Millisecond)
	if wcs := make([]verbs.WC, 1); get(a.cq.Poll(wcs))(t) != 0 {
		t.Errorf("completion of a destroyed QP: %+v", wcs[0])
	}
	if err := qa.PostSend(send(a, 1)); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("posting to it: %v", err)
	}
	// A packet to the destroyed QP's number is dropped and counted.
	must(t, qb.PostSend(send(b, 1)))
	waitFor(t, "unknown_qpn", func() bool { return counter(a.dev, "unknown_qpn") > 0 })
}

func TestV_SEND_11_InlineIsCopiedWhilePosting(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	must(t, qb.PostRecv(recv(b, 1, 100), verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{b.mr.SGE(100, 100)}}))
	text := []byte("not registered, on no heap")
	must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: text}))
	want := string(text)
	clear(text)
	copy(a.buf, "registered")
	wr := send(a, 10)
	wr.Flags |= verbs.SendInline
	must(t, qa.PostSend(wr))
	clear(a.buf[:10])
	b.good(2)
	if got := string(b.buf[:len(want)]); got != want {
		t.Errorf("got %q", got)
	}
	if got := string(b.buf[100:110]); got != "registered" {
		t.Errorf("got %q", got)
	}
	wr.SGList[0].LKey ^= 1
	if err := qa.PostSend(wr); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("inline SGE with a wrong lkey: %v", err)
	}
	// Without bytes it has none to check, as without SendInline.
	wr.SGList[0].Length = 0
	for _, wr.Flags = range []verbs.SendFlags{0, verbs.SendInline} {
		must(t, qb.PostRecv(recv(b, 1, 0)))
		if err := qa.PostSend(wr); err != nil {
			t.Fatalf("empty SGE with a wrong lkey, %v: %v", wr.Flags, err)
		}
		if wc := b.good(1)[0]; wc.ByteLen != 0 {
			t.Errorf("%+v", wc)
		}
	}
}

func TestV_SEND_01_FirstBadRequest(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		must(t, qb.PostRecv(recv(b, 1, 10), recv(b, 2, 10)))
		bad := send(a, 1)
		bad.Opcode, bad.Flags = verbs.WRBindMW, 0
		err := qa.PostSend(send(a, 1), send(a, 1), bad, send(a, 1))
		var post *verbs.PostError
		if !errors.As(err, &post) || post.Index != 2 {
			t.Errorf("PostSend: %v", err)
		}
		b.good(2)
		a.good(2)
		full := make([]verbs.SendWR, 65)
		for i := range full {
			full[i] = send(a, 1)
		}
		if err := qa.PostSend(full...); !errors.As(err, &post) || post.Index != 64 || !errors.Is(err, verbs.ENOMEM) {
			t.Errorf("PostSend of 65 to a queue of 64: %v", err)
		}
	})
}

func TestV_MR_22_KeysOfClosedRegionsFail(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		region := get(b.pd.RegMR(make([]byte, 4096), allAccess))(t)
		wr := verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 100)},
			RemoteAddr: region.Addr(), RKey: region.RKey(),
		}
		must(t, qa.PostSend(wr))
		a.good(1)
		must(t, region.Close())
		must(t, qa.PostSend(wr))
		if wc := a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
			t.Errorf("WRITE to a closed region: %+v", wc)
		}
	})
}

func addr(i int) netip.Addr { return networks[0].addr(i) }

func waitFor(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for start := time.Now(); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Since(start) > 30*time.Second {
			tb.Fatal("timeout waiting for " + what)
		}
	}
}

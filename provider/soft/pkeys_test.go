package soft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// partitioned makes an end for each P_Key table.
func partitioned(tb testing.TB, n *network, tables ...[]uint16) []*end {
	i := 0
	return newEnds(tb, n, len(tables), func(c *soft.Config) { c.PKeys = tables[i]; i++ })
}

// inPartition makes a QP in INIT with an index of the P_Key table.
func (e *end) inPartition(typ verbs.QPType, index uint16) *verbs.QP {
	e.tb.Helper()
	qp := e.qp(typ, nil)
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, PKeyIndex: index, QKey: verbs.DefaultQKey,
		QPAccessFlags: allAccess &^ verbs.AccessLocalWrite}
	mask := verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex
	if typ == verbs.QPTypeUD {
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	must(e.tb, qp.Modify(&attr, mask))
	return qp
}

// passes sends a message from a to b and reports whether it arrived; if not, b must have counted it.
func passes(t *testing.T, a, b *end, qa, qb *verbs.QP) bool {
	t.Helper()
	bad := counter(b.dev, "bad_pkey")
	must(t, qb.PostRecv(recv(b, 1, 2000)))
	wr := send(a, 100)
	if qa.Type() == verbs.QPTypeUD {
		attr := get(qa.AHAttrTo(get(qb.LocalInfo())(t), nil))(t)
		ah := get(a.pd.CreateAH(&attr))(t)
		defer ah.Close()
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qb.QPN(), verbs.DefaultQKey
	}
	must(t, qa.PostSend(wr))
	wc := a.poll(1)[0]
	if qa.Type() != verbs.QPTypeRC {
		must(t, wc.Err())
		for start := time.Now(); time.Since(start) < 10*time.Second; {
			var wcs [1]verbs.WC
			if n := get(b.cq.Poll(wcs[:]))(t); n == 1 && wcs[0].QPNum == qb.QPN() {
				return wcs[0].Status == verbs.WCSuccess
			}
			if counter(b.dev, "bad_pkey") > bad {
				return false
			}
		}
		t.Fatal("the packet has vanished")
	}
	if wc.Status == verbs.WCSuccess {
		b.good(1)
		return true
	}
	if wc.Status != verbs.WCRetryExcErr || counter(b.dev, "bad_pkey") == bad {
		t.Errorf("%v, bad_pkey %d, was %d", wc.Err(), counter(b.dev, "bad_pkey"), bad)
	}
	return false
}

// TestV_PKEY_04_V_PKEY_05_MembersOfPartitions: QPs of every type, over every link, communicate if the P_Keys of their
// indices are of one partition and one of them is a full member. What does not match is dropped and counted.
func TestV_PKEY_04_V_PKEY_05_MembersOfPartitions(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := partitioned(t, n, []uint16{0xffff, 0x8001, 0x0002}, []uint16{0x0002, 0x7fff, 0x8002, 0x0001})
		a, b := ends[0], ends[1]
		bad := uint64(0)
		for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
			for _, c := range []struct {
				from, to uint16
				want     bool
			}{{0, 1, true}, {1, 3, true}, {2, 2, true}, {2, 0, false}, {1, 2, false}} {
				t.Run(fmt.Sprintf("%v/%d-%d", typ, c.from, c.to), func(t *testing.T) {
					qa, qb := a.inPartition(typ, c.from), b.inPartition(typ, c.to)
					var opts *verbs.ConnectOptions
					if !c.want {
						opts = &verbs.ConnectOptions{Timeout: 14, RetryCnt: 2} // it must not take long
					}
					join(t, qa, qb, opts)
					if got := passes(t, a, b, qa, qb); got != c.want {
						t.Errorf("arrived: %v, want %v", got, c.want)
					}
					if attr, _, err := qb.Query(verbs.QPAttrPKeyIndex); err != nil || attr.PKeyIndex != c.to {
						t.Errorf("pkey_index %d, %v", attr.PKeyIndex, err)
					}
				})
				bad = counter(b.dev, "bad_pkey")
			}
		}
		waitFor(t, "bad_pkey_cntr", func() bool { return uint64(get(b.ctx.QueryPort(1))(t).BadPKeyCntr) == bad })
	})
}

// TestV_PKEY_01_V_PKEY_03_V_PKEY_07_ConfiguredTable: the table has the entries of the configuration.
func TestV_PKEY_01_V_PKEY_03_V_PKEY_07_ConfiguredTable(t *testing.T) {
	table := []uint16{0xffff, 0x8001, 0x0002, 0}
	e := partitioned(t, &networks[0], table)[0]
	if attr, port := get(e.ctx.QueryDevice())(t), get(e.ctx.QueryPort(1))(t); attr.MaxPKeys != 4 || port.PKeyTblLen != 4 {
		t.Errorf("max_pkeys %d, pkey_tbl_len %d", attr.MaxPKeys, port.PKeyTblLen)
	}
	for i, want := range table {
		if k := get(e.ctx.QueryPKey(1, i))(t); k != want {
			t.Errorf("entry %d is %#x", i, k)
		}
		if at := get(e.ctx.PKeyIndex(1, want))(t); at != i {
			t.Errorf("the index of %#x is %d", want, at)
		}
	}
	if _, err := e.ctx.QueryPKey(1, 4); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("entry 4: %v", err)
	}
	if _, err := e.ctx.PKeyIndex(1, 0x0001); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("the other membership: %v", err)
	}
	qp := e.qp(verbs.QPTypeUD, nil)
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, PKeyIndex: 4}
	err := qp.Modify(&attr, verbs.QPAttrState|verbs.QPAttrPort|verbs.QPAttrPKeyIndex|verbs.QPAttrQKey)
	if !errors.Is(err, verbs.EINVAL) || !strings.Contains(err.Error(), "must be 0 to 3") {
		t.Errorf("P_Key index 4: %v", err)
	}
	for _, keys := range [][]uint16{{0x8000}, {0, 0}, {1, 1}, make([]uint16, 129)} {
		if _, err := soft.New(soft.Config{Addrs: e.addrs(), PKeys: keys}); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("P_Keys %x: %v", keys, err)
		}
	}
}

// TestV_PKEY_06_V_AE_24_ChangedTable: a change of the table raises PKEY_CHANGE in every context, and QPs use what their
// index stands for from then on.
func TestV_PKEY_06_V_AE_24_ChangedTable(t *testing.T) {
	ends := partitioned(t, &networks[0], []uint16{0xffff, 0}, []uint16{0xffff, 0})
	a, b := ends[0], ends[1]
	second := get(a.dev.Open())(t)
	defer second.Close()
	qa, qb := connect(a, b, verbs.QPTypeUC, nil)
	if !passes(t, a, b, qa, qb) {
		t.Fatal("the default partition does not work")
	}
	must(t, soft.SetPKeys(a.dev.Device, 1, 0x8005, 0xffff))
	for _, vctx := range []*verbs.Context{a.ctx, second} {
		ev := get(vctx.TryGetAsyncEvent())(t)
		ev.Ack()
		if ev.Type != verbs.EventPKeyChange || ev.Port != 1 {
			t.Errorf("event %v of port %d", ev.Type, ev.Port)
		}
	}
	if k := get(a.ctx.QueryPKey(1, 0))(t); k != 0x8005 {
		t.Errorf("entry 0 is %#x", k)
	}
	if passes(t, a, b, qa, qb) {
		t.Error("the QP still sends the old key")
	}
	must(t, soft.SetPKeys(b.dev.Device, 1, 0x0005))
	if !passes(t, a, b, qa, qb) {
		t.Error("the QPs are in one partition again")
	}
	must(t, soft.SetPKeys(b.dev.Device, 1, 0x0005)) // no change
	_ = get(b.ctx.TryGetAsyncEvent())(t)
	if ev, err := b.ctx.TryGetAsyncEvent(); !errors.Is(err, verbs.EAGAIN) {
		t.Errorf("a second event: %v, %v", ev, err)
	}
	must(t, soft.SetPKeys(b.dev.Device, 1, 0, 0x8001)) // the entry of the QP is empty
	if passes(t, a, b, qa, qb) {
		t.Error("an empty entry permits communication")
	}
	for _, bad := range []error{soft.SetPKeys(a.dev.Device, 2, 1), soft.SetPKeys(a.dev.Device, 1, 1, 2, 3),
		soft.SetPKeys(a.dev.Device, 1), soft.SetPKeys(a.dev.Device, 1, 0x8000)} {
		if !errors.Is(bad, verbs.EINVAL) {
			t.Errorf("accepted or %v", bad)
		}
	}
}

func (e *end) addrs() []netip.Addr { return []netip.Addr{networks[0].addr(9)} }

package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func find(tb testing.TB, list []soft.Counter, name string) uint64 {
	tb.Helper()
	for _, c := range list {
		if c.Name == name {
			return c.Value
		}
	}
	tb.Fatalf("no counter %s", name)
	return 0
}

func TestCountersOfQPShardAndDevice(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		if v := find(t, a.dev.Counters(), "sent_pkts"); v != 0 || soft.ShardCounters(a.dev.Device) != nil {
			t.Errorf("sent_pkts is %d before the first QP", v)
		}
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		other, _ := connect(a, b, verbs.QPTypeRC, nil)
		must(t, qa.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 100)},
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
		}))
		a.good(1)
		if v := find(t, soft.QPCounters(qb), "rx_write_requests"); v != 1 {
			t.Errorf("rx_write_requests of the QP is %d", v)
		}
		if v := find(t, soft.QPCounters(other), "tx_data_bytes"); v != 0 {
			t.Errorf("tx_data_bytes of the other QP is %d", v)
		}
		shards := uint64(0)
		for _, s := range soft.ShardCounters(b.dev.Device) {
			shards += find(t, s, "rx_write_requests")
		}
		if v := find(t, soft.Counters(b.dev.Device), "rx_write_requests"); v != 1 || shards != 1 {
			t.Errorf("rx_write_requests of the device is %d, of its shards %d", v, shards)
		}
		if v := find(t, b.dev.Counters(), "rcvd_pkts"); v == 0 {
			t.Error("no packet was received")
		}
	})
}

// TestQPsWithoutCounters checks that QPs of Ethernet frames have no counters.
func TestQPsWithoutCounters(t *testing.T) {
	_, list := fabricOf(t, 1, nil)
	if c := soft.QPCounters(list[0].qp); c != nil {
		t.Errorf("a RAW_PACKET QP has the counters %v", c)
	}
}

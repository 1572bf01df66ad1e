package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

func TestCounterNames(t *testing.T) {
	want := map[string]bool{
		"duplicate_request": true, "out_of_sequence": true, "packet_seq_err": true, "local_ack_timeout_err": true,
		"rnr_nak_retry_err": true, "implied_nak_seq_err": true, "resp_local_length_error": true,
		"resp_remote_access_errors": true,
		"req_remote_access_errors":  true, "req_remote_invalid_request": true, "rx_write_requests": true,
		"rx_read_requests":   true,
		"rx_atomic_requests": true, "sent_pkts": true, "rcvd_pkts": true, "send_rnr_err": true, "rcvd_rnr_err": true,
		"retry_exceeded_err": true, "unknown_qpn": true, "rx_icrc_errors": true,
	}
	seen := map[string]bool{}
	var c Counters
	c.QP.DuplicateRequest = 5
	for _, n := range c.List() {
		if seen[n.Name] {
			t.Errorf("%s twice", n.Name)
		}
		seen[n.Name] = true
		for _, r := range n.Name {
			if (r < 'a' || r > 'z') && r != '_' {
				t.Errorf("name %q", n.Name)
				break
			}
		}
		if n.Name == "duplicate_request" && n.Value != 5 {
			t.Errorf("duplicate_request is %d", n.Value)
		}
	}
	for n := range want {
		if !seen[n] {
			t.Errorf("no counter %s", n)
		}
	}
}

// AddCounters sees its structs as uint64s.
func TestCountersAreWords(t *testing.T) {
	var c Counters
	for i := range words(&c) {
		words(&c)[i] = uint64(i) << 32
	}
	for i, n := range c.List() {
		if n.Value != uint64(i)<<32 {
			t.Errorf("%s is not word %d", n.Name, i)
		}
	}
	if n := len(c.List()); len(words(&c)) != n {
		t.Errorf("%d words, %d counters", len(words(&c)), n)
	}
}

func TestCountersAdd(t *testing.T) {
	a, b := Counters{UnknownQPN: 1}, Counters{UnknownQPN: 2}
	b.QP.OutOfSequence, b.Port.TxBytes = 3, 4
	AddCounters(&a, &b)
	if a.UnknownQPN != 3 || a.QP.OutOfSequence != 3 || a.Port.TxBytes != 4 {
		t.Errorf("%+v", a)
	}
}

// Every QP is looked at, whatever its shard, and in the order of the question.
func TestViews(t *testing.T) {
	m := newManual(t, 3)
	cqs := []*CQ{m.NewCQ(10, 0, nil), m.NewCQ(10, 1, nil), m.NewCQ(10, 2, nil)}
	var qps []*QP
	for i := range uint32(500) {
		qp := newQP(t, m.Engine, cqs[i%3], silent{})
		connectQP(t, qp, 1000+i, 14)
		qp.QP.Counters.RetransmitPackets = uint64(i)
		qps = append(qps, qp)
	}
	last := newQP(t, m.Engine, cqs[0], silent{})
	for i, v := range m.Views(append(qps, last))[:500] {
		if v.Attr.DestQPN != 1000+uint32(i) || v.Counters.RetransmitPackets != uint64(i) || v.Attr.State != transport.RTS {
			t.Fatalf("QP %d: %+v", i, v)
		}
	}
	if v := m.Views([]*QP{last, qps[7]}); v[0].Attr.State != transport.Reset || v[1].Attr.DestQPN != 1007 {
		t.Errorf("%+v", v)
	}
}

// Each counter of a QP counts in the shard that runs it, and once in the sum.
func TestCountersOfShards(t *testing.T) {
	m := newManual(t, 3)
	cqs := []*CQ{m.NewCQ(10, 0, nil), m.NewCQ(10, 1, nil), m.NewCQ(10, 2, nil)}
	var of [3]uint64
	for i := range uint64(7) {
		qp := newQP(t, m.Engine, cqs[i%3], silent{})
		qp.QP.Counters.RetransmitPackets = 1 << i
		of[qp.shard.index] += 1 << i
	}
	for i, want := range of {
		if c := m.ShardCounters(i); c.QP.RetransmitPackets != want {
			t.Errorf("shard %d: %d, want %d", i, c.QP.RetransmitPackets, want)
		}
	}
	if c := m.Counters(); c.QP.RetransmitPackets != 1<<7-1 {
		t.Errorf("all: %d", c.QP.RetransmitPackets)
	}
}

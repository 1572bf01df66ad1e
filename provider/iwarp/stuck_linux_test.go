package iwarp_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// heap is the memory in use.
func heap() int {
	runtime.GC()
	runtime.GC() // the first one moves what pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Peers that do not read cost a bounded number of bytes each, however much is posted and however often they ask; the
// connection beside them works.
func TestPeersThatDoNotRead(t *testing.T) {
	const peers, long = 20, 1 << 20
	for _, crc := range []bool{false, true} {
		v := newVictim(t)
		var all []*attacker
		for range peers {
			all = append(all, v.attack(crc))
		}
		before := heap()
		for _, a := range all {
			mem := make([]byte, long)
			mr, err := a.PD().RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			must(t, err)
			defer mr.Close()
			a.push(a.frame(untagged(lastUntagged, opSend, 0, 1, 0, 1)), false)
			if wc := a.wait(a.RecvCQ()); wc.Status != verbs.WCSuccess {
				t.Fatalf("%+v", wc)
			}
			for range 30 {
				must(t, a.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{mr.SGE(0, long)},
					RemoteAddr: 1, RKey: 1}))
			}
			a.push(a.frame(readOf(1, 0, mr.RKey(), mr.Addr(), long)), false)
		}
		v.healthy()
		const buffers = 8 * 64774 // the FPDUs that wait for the stream
		if grown, most := heap()-before, peers*(long+buffers+64<<10); grown > most {
			t.Errorf("crc=%v: %d peers cost %d bytes, want at most %d", crc, peers, grown, most)
		}
		for _, a := range all {
			if a.QP().State() != verbs.QPSRTS {
				t.Errorf("a QP is in %v", a.QP().State())
			}
			must(t, a.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		}
		for range all {
			must(t, event(t, v.ch, rdmacm.EventDisconnected).Ack())
		}
		v.healthy()
	}
}

// Peers that stop within an FPDU hold at most one FPDU each.
func TestPeersThatStopWithinAnFPDU(t *testing.T) {
	const peers = 20
	v := newVictim(t)
	var all []*attacker
	for i := range peers {
		all = append(all, v.attack(i%2 == 0))
	}
	before := heap()
	for _, a := range all {
		k := a.keys()
		b := a.frame(taggedSeg(lastTagged, opWrite, k.good, k.base, 900))
		a.push(b[:len(b)-1], false)
	}
	v.healthy()
	if grown, most := heap()-before, peers*(64<<10); grown > most {
		t.Errorf("%d peers cost %d bytes, want at most %d", peers, grown, most)
	}
	for _, a := range all {
		_ = a.TCPConn.Close()
		must(t, event(t, v.ch, rdmacm.EventDisconnected).Ack())
	}
	v.healthy()
}

// A peer that sends messages without content, as fast as it can, does not keep others from theirs.
func TestPeerThatNeverStops(t *testing.T) {
	v := newVictim(t)
	a := v.attack(false)
	flood := bytes.Repeat(a.frame(taggedSeg(lastTagged, opWrite, 0, 0, 0)), 5000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := a.TCPConn.Write(flood); err != nil {
				return
			}
		}
	}()
	for range 100 {
		v.healthy()
	}
	if a.QP().State() != verbs.QPSRTS {
		t.Errorf("the QP is in %v", a.QP().State())
	}
	must(t, a.TCPConn.SetWriteDeadline(time.Unix(1, 0)))
	<-done
	_ = a.TCPConn.Close()
	must(t, event(t, v.ch, rdmacm.EventDisconnected).Ack())
}

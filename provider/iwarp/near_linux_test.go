package iwarp_test

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// write writes n bytes of an end's memory to the same place of the other end, and waits for the completion.
func (e *end) write(to *end, n int) {
	e.t.Helper()
	must(e.t, e.QP().PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: e.sge(0, n),
		RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()}))
	if wc := e.wait(e.SendCQ()); wc.Status != verbs.WCSuccess {
		e.t.Fatalf("WRITE of %d bytes: %+v", n, wc)
	}
}

// pieces are those that a QP has sent and received through shared memory.
func (e *end) pieces() (sent, received uint64) {
	list := qpOf(e.t, report(e.t), e).Counters
	return value(list, "shm_tx_packets"), value(list, "shm_rx_packets")
}

// throughMemory makes a connection both of whose directions go through shared memory.
func throughMemory(t *testing.T) (c, s *end) {
	t.Helper()
	c, s = connect(t)
	for start := time.Now(); ; {
		c.write(s, 16<<10)
		s.write(c, 16<<10)
		a, b := c.pieces()
		if x, y := s.pieces(); a > 0 && b > 0 && x > 0 && y > 0 {
			return c, s
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("the connection does not go through shared memory")
		}
	}
}

// exchange has WRITEs, READs and SENDs of many lengths arrive.
func exchange(t *testing.T, c, s *end) {
	t.Helper()
	for i, n := range []int{0, 1, 64, 1500, 16 << 10, 100_001, 1 << 20, memSize} {
		fill(c.mem[:n], byte(i))
		s.recv(1, 0, 1)
		must(t, c.QP().PostSend(
			verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, n), RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte{c.mem[0]}}))
		if wc := s.wait(s.RecvCQ()); wc.Status != verbs.WCSuccess || !bytes.Equal(c.mem[:n], s.mem[:n]) {
			t.Fatalf("WRITE of %d bytes, then SEND: %+v", n, wc)
		}
		for range 2 {
			if wc := c.wait(c.SendCQ()); wc.Status != verbs.WCSuccess {
				t.Fatalf("%d bytes: %+v", n, wc)
			}
		}
		fill(s.mem[:n], byte(i+100))
		must(t, c.QP().PostSend(verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMARead, SGList: c.sge(0, n),
			RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()}))
		if wc := c.wait(c.SendCQ()); wc.Status != verbs.WCSuccess || !bytes.Equal(c.mem[:n], s.mem[:n]) {
			t.Fatalf("READ of %d bytes: %+v", n, wc)
		}
		fill(s.mem[:n], byte(i+50))
		c.recv(1, 0, memSize)
		must(t, s.QP().PostSend(verbs.SendWR{WRID: 4, Opcode: verbs.WRSend, SGList: s.sge(0, n)}))
		if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCSuccess || int(wc.ByteLen) != n ||
			!bytes.Equal(c.mem[:n], s.mem[:n]) {
			t.Fatalf("SEND of %d bytes: %+v", n, wc)
		}
		s.wait(s.SendCQ())
	}
}

// Messages go through shared memory, and the connection ends as it does over TCP.
func TestSharedMemory(t *testing.T) {
	for _, crc := range []string{"0", "1"} {
		t.Run("CRC"+crc, func(t *testing.T) {
			t.Setenv("VERBENA_IWARP_CRC", crc)
			c, s := throughMemory(t)
			exchange(t, c, s)
			must(t, c.Disconnect(t.Context()))
			must(t, event(t, s.ch, rdmacm.EventDisconnected).Ack())
			must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
		})
	}
}

// VERBENA_SHM=0 leaves a connection with TCP.
func TestSharedMemoryDisabled(t *testing.T) {
	t.Setenv("VERBENA_SHM", "0")
	c, s := connect(t)
	exchange(t, c, s)
	for _, e := range []*end{c, s} {
		if sent, received := e.pieces(); sent+received > 0 {
			t.Errorf("%d pieces sent, %d received through shared memory", sent, received)
		}
	}
}

// What is posted before a Disconnect arrives, however much it is.
func TestDisconnectThroughSharedMemory(t *testing.T) {
	c, s := throughMemory(t)
	fill(c.mem, 3)
	s.recv(1, 0, 1)
	must(t, c.QP().PostSend(
		verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, memSize), RemoteAddr: s.mr.Addr(),
			RKey: s.mr.RKey()},
		verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte{c.mem[0]}}))
	must(t, c.Disconnect(t.Context()))
	if wc := s.wait(s.RecvCQ()); wc.Status != verbs.WCSuccess || !bytes.Equal(c.mem, s.mem) {
		t.Errorf("the last message: %+v", wc)
	}
	must(t, event(t, s.ch, rdmacm.EventDisconnected).Ack())
	must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
}

// A Terminate goes the way of the messages.
func TestTerminateThroughSharedMemory(t *testing.T) {
	c, s := throughMemory(t)
	must(t, c.QP().PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: c.sge(0, 8),
		RemoteAddr: s.mr.Addr() + memSize, RKey: s.mr.RKey()}))
	if wc := c.wait(c.SendCQ()); wc.WRID != 1 || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("the READ: %+v", wc)
	}
	must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
	must(t, event(t, s.ch, rdmacm.EventDisconnected).Ack())
}

// A QP that is moved to ERR ends the peer's.
func TestCutThroughSharedMemory(t *testing.T) {
	c, s := throughMemory(t)
	s.recv(5, 0, 1)
	must(t, c.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
	if wc := s.wait(s.RecvCQ()); wc.WRID != 5 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("the receive: %+v", wc)
	}
	must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
	must(t, event(t, s.ch, rdmacm.EventDisconnected).Ack())
}

// A program may poll, stop without a word, and wait: no message stays in the memory.
func TestSharedMemoryAfterPollingHasStopped(t *testing.T) {
	const rounds = 100
	c, s := throughMemory(t)
	var wcs [4]verbs.WC
	for i := range rounds {
		for d, start := time.Duration(i*i%31)*100*time.Microsecond, time.Now(); time.Since(start) < d; runtime.Gosched() {
			_, err := s.RecvCQ().Poll(wcs[:])
			must(t, err)
		}
		*(*uint64)(unsafe.Pointer(&c.mem[0])) = uint64(i + 1)
		must(t, c.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, 8), RemoteAddr: s.mr.Addr() + 8,
			RKey: s.mr.RKey()}))
		word := (*uint64)(unsafe.Pointer(&s.mem[8]))
		for start := time.Now(); atomic.LoadUint64(word) != uint64(i+1); time.Sleep(20 * time.Microsecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("round %d: nothing has arrived", i)
			}
		}
		c.wait(c.SendCQ())
	}
}

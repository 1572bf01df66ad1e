package udp

import (
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// counters are the live values of link.Counters.
type counters struct {
	txPackets, txBytes, txDropped, txLong   atomic.Uint64
	rxPackets, rxBytes, rxICRC, rxMalformed atomic.Uint64
	rxScreened, rxDropped                   atomic.Uint64
}

func (c *counters) read() link.Counters {
	return link.Counters{
		TxPackets: c.txPackets.Load(), TxBytes: c.txBytes.Load(), TxDropped: c.txDropped.Load(), TxTooLong: c.txLong.Load(),
		RxPackets: c.rxPackets.Load(), RxBytes: c.rxBytes.Load(),
		RxICRCErrors: c.rxICRC.Load(), RxMalformed: c.rxMalformed.Load(), RxScreened: c.rxScreened.Load(),
		RxDropped: c.rxDropped.Load(),
	}
}

// refuse counts packet i of a batch, which the kernel refused.
func (c *counters) refuse(b *link.TxBatch, i int, errno syscall.Errno) {
	p := &b.Packets[i]
	c.txDropped.Add(1)
	if errno == syscall.EMSGSIZE {
		c.txLong.Add(1)
	}
	p.Path.Refuse(errno, p.Len)
}

const rxFlows = 64 // a power of two

// An rxFlow is the state of packets from one remote socket to one local address.
type rxFlow struct {
	src, dst netip.Addr
	port     uint16
	id       uint16 // the last IPv4 identification
	flow     wire.Flow
}

// A verifier checks received packets.
type verifier struct {
	flows [rxFlows]rxFlow // a cache, indexed by source port

	// Counted since the last flush; bytes are of the good packets that this process keeps.
	seen, bytes, badICRC, malformed, screened uint64
}

// flowOf returns the flow from src:srcPort to dst:dstPort.
func (v *verifier) flowOf(src netip.Addr, srcPort uint16, dst netip.Addr, dstPort uint16) *rxFlow {
	f := &v.flows[srcPort%rxFlows]
	if f.port != srcPort || f.src != src || f.dst != dst {
		*f = rxFlow{src: src, dst: dst, port: srcPort, flow: wire.NewFlow(src, dst, srcPort, dstPort)}
	}
	return f
}

// guess returns the probable identification of packet k of a message: k in a GSO run, as the package comment says; 0
// for a single packet of Verbena; for senders that count, the next number.
func (f *rxFlow) guess(k int, train bool) uint16 {
	if train || f.id == 0 {
		return uint16(k)
	}
	return f.id + 1
}

// check returns the bytes of pkt from BTH to pad, or counts the reason why pkt is dropped.
func (v *verifier) check(f *rxFlow, pkt []byte, guess uint16) (body []byte, ok bool) {
	if len(pkt) < wire.BTHLen+wire.ICRCLen {
		v.malformed++
		return nil, false
	}
	body = pkt[: len(pkt)-wire.ICRCLen : len(pkt)-wire.ICRCLen]
	if _, err := wire.Parse(body); err != nil {
		v.malformed++
		return nil, false
	}
	id, ok := f.flow.Verify(pkt, guess)
	if !ok {
		v.badICRC++
		return nil, false
	}
	f.id = id
	return body, true
}

// flush adds the counts, and n good packets, to c.
func (v *verifier) flush(c *counters, n int) {
	if n > 0 {
		c.rxPackets.Add(uint64(n))
		c.rxBytes.Add(v.bytes)
	}
	if v.badICRC|v.malformed|v.screened != 0 {
		c.rxICRC.Add(v.badICRC)
		c.rxMalformed.Add(v.malformed)
		c.rxScreened.Add(v.screened)
	}
	v.seen, v.bytes, v.badICRC, v.malformed, v.screened = 0, 0, 0, 0, 0
}

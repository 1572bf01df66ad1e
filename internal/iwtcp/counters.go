package iwtcp

import (
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// Counters of a QP, or of a device since it was opened: those of its QPs, with the destroyed ones.
type Counters struct {
	QP iwarp.Counters

	// Of TCP, from the connection's first packet on.
	RetransmitPackets uint64 // segments sent again
	TxPackets         uint64 // segments, and pieces that go through shared memory
	TxBytes           uint64 // of the stream, without those sent again
	RxPackets         uint64
	RxBytes           uint64

	ShmTxPackets uint64 // pieces that go through shared memory
	ShmRxPackets uint64
}

// List returns all counters with their names.
func (c *Counters) List() []engine.Counter { return engine.ListCounters(c) }

// Files returns the files of a port in sysfs: see engine.Files.
func (c *Counters) Files() []engine.Counter {
	return engine.Files(c.List(), &engine.PortCounters{
		XmitBytes: c.TxBytes, RcvBytes: c.RxBytes, XmitPackets: c.TxPackets, RcvPackets: c.RxPackets,
		RcvErrors: c.QP.RxCRCErrors,
	})
}

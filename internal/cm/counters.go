package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// Counters of a machine. Each only grows. The first four are what Linux has under cm_tx_msgs, cm_tx_retries, cm_rx_msgs and
// cm_rx_duplicates.
type Counters struct {
	Tx           KindCounts // all that went out, repetitions included
	TxRetries    KindCounts // repetitions because no answer came
	Rx           KindCounts // all that Parse took
	RxDuplicates KindCounts // those that had been there before

	RxMalformed uint64 // no CM message: length, version, class, method or attribute
	RxInvalid   uint64 // a field with a value that cannot be
	RxSpoofed   uint64 // about a connection, but from elsewhere than its peer
	RxUnmatched uint64 // about a connection that does not exist
	Stale       uint64 // requests and replies from a QP that had a connection already
	BacklogFull uint64 // requests dropped because the program does not fetch them
	TableFull   uint64 // requests dropped because of Config.MaxIDs
	Deaths      uint64 // connections that ended since the peer's process has died
}

// KindCounts counts messages of each kind.
type KindCounts [cmmsg.KindAPR - cmmsg.KindREQ + 1]uint64

// Of is the count for one kind.
func (c *KindCounts) Of(k cmmsg.Kind) uint64 { return c[k-cmmsg.KindREQ] }

func (c *KindCounts) add(k cmmsg.Kind) { c[k-cmmsg.KindREQ]++ }

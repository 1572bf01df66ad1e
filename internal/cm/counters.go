package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// Counters of a machine. They never decrease. The first four are Linux's cm_tx_msgs, cm_tx_retries, cm_rx_msgs and
// cm_rx_duplicates.
type Counters struct {
	Tx           KindCounts // messages sent, repetitions included
	TxRetries    KindCounts // messages repeated because no answer came
	Rx           KindCounts // messages received and well-formed
	RxDuplicates KindCounts // messages received before

	RxMalformed uint64 // not a CM message: length, version, class, method or attribute
	RxInvalid   uint64 // a field with an invalid value
	RxSpoofed   uint64 // about a connection, but not from its peer's address
	RxUnmatched uint64 // about a connection that does not exist
	Stale       uint64 // requests and replies from a QP that had a connection already
	BacklogFull uint64 // requests dropped as the program does not fetch them
	TableFull   uint64 // requests dropped because of Config.MaxIDs
	Flooded     uint64 // requests dropped because of too many half-open handshakes
	Evicted     uint64 // half-open handshakes ended in favour of another
	Unanswered  uint64 // messages about something that does not exist, beyond the rate of their answers
	Deaths      uint64 // connections ended by the death of the peer's process
}

// KindCounts counts messages of each kind.
type KindCounts [cmmsg.KindAPR - cmmsg.KindREQ + 1]uint64

// Of is the count for one kind.
func (c *KindCounts) Of(k cmmsg.Kind) uint64 { return c[k-cmmsg.KindREQ] }

func (c *KindCounts) add(k cmmsg.Kind) { c[k-cmmsg.KindREQ]++ }

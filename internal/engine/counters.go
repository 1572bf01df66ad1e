package engine

import (
	"reflect"
	"strings"
	"unicode"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// counters are the counters of a shard that do not belong to a QP or port. They belong to the holder.
type counters struct {
	unknownQPN   uint64
	unknownGroup uint64
	gone         transport.Counters // sums of destroyed QPs
}

// Counters is a snapshot of the counters of a device or shard since it was opened. Counts of destroyed QPs are
// included.
type Counters struct {
	QP           transport.Counters // sums of all QPs
	Port         link.Counters
	UnknownQPN   uint64 // packets dropped: no such QP
	UnknownGroup uint64 // multicast packets dropped: no QP attached to the group
	InboxDropped uint64 // packets dropped: inbox of the QP's shard full
}

// A Counter is a value with its name, which is that of the kernel's hw_counters where one exists.
type Counter struct {
	Name  string
	Value uint64
}

// Counters returns a copy of the QP's counters.
func (qp *QP) Counters() transport.Counters {
	qp.shard.hold()
	defer qp.shard.release()
	return qp.QP.Totals()
}

// A View is a snapshot of a QP.
type View struct {
	Attr     transport.Attr
	Counters transport.Counters
}

// Views takes snapshots of QPs. It holds each shard for at most 64 QPs at a time.
func (e *Engine) Views(qps []*QP) []View {
	const atOnce = 64
	views := make([]View, len(qps))
	for _, s := range e.running() {
		n := 0
		s.hold()
		for i, qp := range qps {
			if qp.shard != s {
				continue
			}
			if n++; n%atOnce == 0 {
				s.release()
				s.hold()
			}
			views[i] = View{qp.QP.Attr(), qp.QP.Totals()}
		}
		s.release()
	}
	return views
}

// Shards returns the number of shards, 0 before the first QP.
func (e *Engine) Shards() int { return len(e.running()) }

// ShardCounters returns the counters of shard i.
func (e *Engine) ShardCounters(i int) Counters {
	s := e.shards[i]
	s.hold()
	defer s.release()
	c := Counters{
		QP: s.counters.gone, Port: s.port.Counters(), InboxDropped: s.inbox.drops(),
		UnknownQPN: s.counters.unknownQPN, UnknownGroup: s.counters.unknownGroup,
	}
	for qp := range e.qps.all() {
		if e.shardOf(qp.Num) == s {
			sum := qp.Totals()
			AddCounters(&c.QP, &sum)
		}
	}
	return c
}

// Counters returns the sums of all shards.
func (e *Engine) Counters() (c Counters) {
	for i := range e.running() {
		s := e.ShardCounters(i)
		AddCounters(&c, &s)
	}
	return c
}

// AddCounters adds the numbers in the struct at src to those at dst. All of T are of type uint64. Each QP that is
// destroyed calls it, which reflection would slow down.
func AddCounters[T any](dst, src *T) {
	to, from := words(dst), words(src)
	for i, n := range from {
		to[i] += n
	}
}

// words returns the numbers in a struct.
func words[T any](c *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(c)), unsafe.Sizeof(*c)/unsafe.Sizeof(uint64(0)))
}

// List returns all counters with their names, those of QPs first.
func (c *Counters) List() []Counter { return ListCounters(c) }

// ListCounters returns the numbers in a struct with the names of the counters.
func ListCounters[T any](c *T) []Counter { return list(nil, reflect.ValueOf(c).Elem()) }

func list(to []Counter, v reflect.Value) []Counter {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Struct {
			to = list(to, f)
		} else {
			to = append(to, Counter{counterName(v.Type().Field(i).Name), f.Uint()})
		}
	}
	return to
}

// kernelNames holds the kernel's names that differ from the field's name in snake case.
var kernelNames = map[string]string{
	"RNRNakSent":           "send_rnr_err",
	"RNRNakRcvd":           "rcvd_rnr_err",
	"RNRNakRetryErr":       "rnr_nak_retry_err",
	"RetryExceeded":        "retry_exceeded_err",
	"RespRemoteAccessErrs": "resp_remote_access_errors",
	"RespCQEError":         "resp_cqe_error",
	"ReqRemoteAccessErr":   "req_remote_access_errors",
	"ReqRemoteInvalid":     "req_remote_invalid_request",
	"MarkedPackets":        "np_ecn_marked_roce_packets",
	"CNPSent":              "np_cnp_sent",
	"CNPHandled":           "rp_cnp_handled",
	"CNPIgnored":           "rp_cnp_ignored",
	"TxPackets":            "sent_pkts",
	"RxPackets":            "rcvd_pkts",
	"TxDropped":            "send_err",
	"RxICRCErrors":         "rx_icrc_errors",
	"RxCRCErrors":          "rx_crc_errors",
	"BadPKey":              "bad_pkey",
	"BadQKey":              "bad_qkey",
	"UnknownQPN":           "unknown_qpn",
}

// counterName returns the name of a field's counter: DuplicateRequest is duplicate_request.
func counterName(field string) string {
	if n, ok := kernelNames[field]; ok {
		return n
	}
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

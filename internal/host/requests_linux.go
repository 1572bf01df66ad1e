package host

import (
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"
)

// A requestFilter lists the service IDs of the requests that arrive at the socket of QP 1. It may pass more than those
// that processes have claimed: a program of the kernel has a limited length.
type requestFilter struct {
	ranges []idRange // of IDs below 1<<32, in order; those of rdma_cm are
	others bool      // all IDs from 1<<32 on
}

type idRange struct{ first, last uint32 }

// allRequests passes every request.
var allRequests = requestFilter{ranges: []idRange{{0, 1<<32 - 1}}, others: true}

// maxRanges is the number of ranges of a filter. With more, neighbours merge.
const maxRanges = 128

// newRequestFilter returns the filter for service IDs, which are in order. IDs that are not further apart than the
// smallest sufficient power of two share a range.
func newRequestFilter(ids []uint64) (f requestFilter) {
	n, _ := slices.BinarySearch(ids, 1<<32)
	f.others = n < len(ids)
	if n == 0 {
		return f
	}
	var apart [33]int // neighbours, by the power of two that reaches from one to the other
	for i, id := range ids[1:n] {
		apart[bits.Len64(id-ids[i]-1)]++
	}
	power := len(apart) - 1
	for ranges := 1 + apart[power]; power > 0 && ranges <= maxRanges; ranges += apart[power] {
		power--
	}
	for _, id := range ids[:n] {
		if k := len(f.ranges); k > 0 && id-uint64(f.ranges[k-1].last) <= 1<<power {
			f.ranges[k-1].last = uint32(id)
		} else {
			f.ranges = append(f.ranges, idRange{uint32(id), uint32(id)})
		}
	}
	return f
}

func (f requestFilter) equal(g requestFilter) bool {
	return f.others == g.others && slices.Equal(f.ranges, g.ranges)
}

// program returns instructions that choose the socket of a request.
func (f requestFilter) program() []unix.SockFilter {
	others := uint32(Strays)
	if f.others {
		others = GSI
	}
	prog := []unix.SockFilter{
		{Code: bpfLoadWord, K: MADOffset + madReqSID},
		{Code: bpfJumpEq, Jt: 1},
		{Code: bpfRetK, K: others},
		{Code: bpfLoadWord, K: MADOffset + madReqSID + 4},
	}
	return appendRanges(prog, f.ranges, unix.SockFilter{Code: bpfRetK, K: GSI})
}

// appendRanges appends instructions that execute found, which ends the program, if the accumulator is in one of the
// ranges. Otherwise the packet arrives at the socket of strays.
func appendRanges(prog []unix.SockFilter, ranges []idRange, found ...unix.SockFilter) []unix.SockFilter {
	for _, r := range ranges {
		prog = append(prog,
			unix.SockFilter{Code: bpfJumpGe, K: r.first, Jt: 1},
			unix.SockFilter{Code: bpfRetK, K: Strays},
			unix.SockFilter{Code: bpfJumpGt, K: r.last, Jt: uint8(len(found))})
		prog = append(prog, found...)
	}
	return append(prog, unix.SockFilter{Code: bpfRetK, K: Strays})
}

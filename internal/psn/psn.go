// Package psn is arithmetic on packet sequence numbers: 24-bit counters that wrap around.
//
// Comparison is circular, as IBTA volume 1 section 9.7 asks: of two numbers the
// later is the one that is less than 2^23 ahead of the other. The package imports nothing.
package psn

// Mask keeps the 24 bits of a packet sequence number.
const Mask = 1<<24 - 1

// Add moves a PSN n packets on; n may be negative.
func Add(p uint32, n int) uint32 { return uint32(int(p)+n) & Mask }

// Next is the PSN after p.
func Next(p uint32) uint32 { return (p + 1) & Mask }

// Diff is the signed distance from b to a, in -2^23 .. 2^23-1: positive when a is later.
func Diff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }

// Less tells whether a comes before b.
func Less(a, b uint32) bool { return Diff(a, b) < 0 }

// InRange tells whether p lies in the n packets that begin with first.
func InRange(p, first uint32, n int) bool {
	d := Diff(p, first)
	return d >= 0 && d < n
}

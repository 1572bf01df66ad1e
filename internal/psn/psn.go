// Package psn is arithmetic on packet sequence numbers, which are 24-bit counters that wrap around.
//
// Comparison is circular (IBTA volume 1, 9.7): of two numbers the later one is less than 2^23 ahead of the other.
// The package imports nothing.
package psn

// Mask keeps the 24 bits of a packet sequence number.
const Mask = 1<<24 - 1

// Add returns the PSN n packets after p, or -n before it if n is negative.
func Add(p uint32, n int) uint32 { return uint32(int(p)+n) & Mask }

// Next returns the PSN after p.
func Next(p uint32) uint32 { return (p + 1) & Mask }

// Diff returns the signed distance from b to a, -2^23 to 2^23-1; it is positive if a is later.
func Diff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }

// Less reports whether a comes before b.
func Less(a, b uint32) bool { return Diff(a, b) < 0 }

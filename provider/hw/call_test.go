//go:build linux && (amd64 || arm64)

package hw

import "testing"

// BenchmarkCall measures what a call of C costs besides the function: one that returns at once.
func BenchmarkCall(b *testing.B) {
	l, err := loaded()
	if err != nil {
		b.Skip(err)
	}
	c := new(caller)
	b.Run("caller", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.do(l.errnoLocation, 0, 0, 0)
		}
	})
	b.Run("call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			call(l.errnoLocation, 0, 0, 0)
		}
	})
}

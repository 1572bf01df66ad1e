//go:build linux && (amd64 || arm64)

package hw

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// TestCallerLayout has the fields of caller where call_amd64.s expects them.
func TestCallerLayout(t *testing.T) {
	var c caller
	got := [3]uintptr{unsafe.Offsetof(c.fn), unsafe.Offsetof(c.args), unsafe.Offsetof(c.result)}
	if want := [3]uintptr{0, 8, 32}; got != want {
		t.Errorf("offsets %d, want %d", got, want)
	}
}

// TestCaller calls functions of the C library with one to three arguments, from many goroutines at once.
func TestCaller(t *testing.T) {
	symbol := func(name string) uintptr {
		fn, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			t.Fatal(err)
		}
		return fn
	}
	abs, strnlen, memcpy := symbol("labs"), symbol("strnlen"), symbol("memcpy")
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			type memory struct {
				caller
				from, to [16]byte
			}
			m := &memory{from: [16]byte([]byte("0123456789abcdef"))}
			for range 10_000 {
				m.to = [16]byte{}
				if n := m.do(abs, ^uintptr(41), 0, 0); n != 42 {
					t.Fatalf("labs(-42) is %d", int(n))
				}
				if n := m.do(strnlen, uintptr(unsafe.Pointer(&m.from)), 7, 0); n != 7 {
					t.Fatalf("strnlen is %d", n)
				}
				to := uintptr(unsafe.Pointer(&m.to))
				at := m.do(memcpy, to, uintptr(unsafe.Pointer(&m.from)), 15)
				if at != to || string(m.to[:15]) != "0123456789abcde" {
					t.Fatalf("memcpy returns %x of %x: %q", at, to, m.to)
				}
			}
		})
	}
}

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

//go:build linux && (amd64 || arm64)

package hw

import (
	"testing"

	"github.com/ebitengine/purego"
)

// symbol returns the address of a function of a library.
func symbol(t *testing.T, file, name string) uintptr {
	h, err := purego.Dlopen(file, purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	fn, err := purego.Dlsym(h, name)
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

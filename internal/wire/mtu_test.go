package wire_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

func TestFittingMTU(t *testing.T) {
	for _, c := range []struct{ most, room, want int }{
		{4096, 9000, 4096}, {4096, 4096 + 80, 4096}, {4096, 4096 + 79, 2048}, {4096, 1500, 1024}, {512, 9000, 512},
		{1024, 600, 512}, {4096, 256 + 80, 256}, {4096, 100, 256},
	} {
		if got := wire.FittingMTU(c.most, c.room); got != c.want {
			t.Errorf("at most %d in %d: %d, want %d", c.most, c.room, got, c.want)
		}
	}
}

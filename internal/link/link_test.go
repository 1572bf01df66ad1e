package link

import "testing"

// The numbers are those of rdma_flow_label_to_udp_sport and rdma_calc_flow_label of Linux 6.1, computed apart from this code.
func TestSourcePort(t *testing.T) {
	for _, c := range []struct {
		label, local, remote uint32
		want                 uint16
	}{
		{0, 0, 0, 0},
		{0, 7, 0, 0},
		{1, 0, 0, 0xc001},
		{0x3fff, 0, 0, 0xffff},
		{0x4000, 0, 0, 0xc001},
		{0xfffff, 0, 0, 0xffc0},
		{0x12345, 9, 9, 0xe341},
		{0x100001, 9, 9, 0xc001},
		{0, 0x11, 0x12, 0xc132},
		{0, 0x12, 0x11, 0xc132},
		{0, 0xffffff, 0xffffff, 0xff21},
		{0, 0x123456, 0xabcdef, 0xc3c8},
	} {
		if got := SourcePort(c.label, c.local, c.remote); got != c.want {
			t.Errorf("label %#x of QPs %#x and %#x: %#x, want %#x", c.label, c.local, c.remote, got, c.want)
		}
	}
}

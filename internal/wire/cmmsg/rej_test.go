package cmmsg

import "testing"

func TestMTUOfREJ(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		ari    []byte
		want   uint8
	}{
		{RejInvalidMTU, []byte{3}, 3}, {RejInvalidMTU, []byte{0x30}, 3}, {RejInvalidMTU, nil, 0},
		{RejInvalidMTU, []byte{0}, 0}, {RejInvalidMTU, []byte{6}, 0}, {RejInvalidMTU, []byte{0xF0}, 0},
		{RejConsumer, []byte{3}, 0},
	} {
		r := make(REJ, Len)
		r.Put(1, 2, AboutREQ, c.reason, c.ari)
		if got := r.MTU(); got != c.want {
			t.Errorf("%v %x: %d, want %d", c.reason, c.ari, got, c.want)
		}
	}
}

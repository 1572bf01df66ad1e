package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_QDX_03_EndPadding: QPs of all types take the flag and report it, and no byte behind a message is written.
func TestV_QDX_03_EndPadding(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		if f := get(a.ctx.QueryDevice())(t).DeviceCapFlags; f&verbs.DevicePCIWriteEndPadding == 0 {
			t.Errorf("capabilities %v", f)
		}
		padded := func(i *verbs.QPInitAttr) { i.CreateFlags = verbs.QPCreatePCIWriteEndPadding }
		for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
			if _, init, err := a.qp(typ, padded).Query(0); err != nil || init.CreateFlags != verbs.QPCreatePCIWriteEndPadding {
				t.Errorf("%v: create flags %v, %v", typ, init.CreateFlags, err)
			}
		}
		qa, qb := a.qp(verbs.QPTypeRC, padded), b.qp(verbs.QPTypeRC, padded)
		join(t, qa, qb, nil)
		a.fill(1)
		for i := range b.buf[:256] {
			b.buf[i] = 0xee
		}
		must(t, qb.PostRecv(recv(b, 1, 5)))
		must(t, qa.PostSend(send(a, 5)))
		a.good(1)
		b.good(1)
		for i, v := range b.buf[5:256] {
			if v != 0xee {
				t.Fatalf("byte %d behind the message is %#x", i, v)
			}
		}
	})
}

package pcap

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A train becomes the packets that its sender would have sent over a network.
func TestCut(t *testing.T) {
	data := make([]byte, 2500)
	for i := range data {
		data[i] = byte(i)
	}
	for _, c := range []struct {
		op   wire.Opcode
		want [3]wire.Opcode
	}{
		{wire.SendOnly, [3]wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLast}},
		{wire.SendOnlyInv, [3]wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLastInv}},
		{wire.WriteOnlyImm, [3]wire.Opcode{wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm}},
		{wire.WriteFirst, [3]wire.Opcode{wire.WriteFirst, wire.WriteMiddle, wire.WriteMiddle}},
		{wire.SendLastImm, [3]wire.Opcode{wire.SendMiddle, wire.SendMiddle, wire.SendLastImm}},
		{wire.ReadRespOnly, [3]wire.Opcode{wire.ReadRespFirst, wire.ReadRespMiddle, wire.ReadRespLast}},
	} {
		f := wire.Fields{Opcode: c.op, PSN: 0xffffff, DestQPN: 7, AckReq: true, Imm: 5, Addr: 9, DMALen: 2500, Payload: data}
		var cut train
		var list [][]byte
		for cut.begin(f.Build(), nil, 1024); cut.next(); {
			list = append(list, append(bytes.Clone(cut.head), cut.body...))
		}
		if len(list) != 3 {
			t.Fatalf("%v: %d packets", c.op, len(list))
		}
		var got []byte
		for i, b := range list {
			p, err := wire.Parse(b)
			if err != nil {
				t.Fatalf("%v: packet %d: %v", c.op, i, err)
			}
			h := p.BTH()
			if h.Opcode() != c.want[i] || h.PSN() != (0xffffff+uint32(i))&0xffffff || h.AckReq() != (i == 2) {
				t.Errorf("%v: packet %d is %v", c.op, i, p)
			}
			got = append(got, p.Payload()...)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%v: the data is not the train's", c.op)
		}
	}
}

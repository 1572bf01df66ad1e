package pcap

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// cut makes the packets that a train stands for: link.RxPacket.Train.
func cut(p *link.RxPacket, mtu int) [][]byte {
	whole := wire.Packet(p.Append(nil)).Fields()
	data := whole.Payload
	if mtu <= 0 || mtu > wire.MaxPayload {
		mtu = wire.MaxPayload
	}
	n := max(1, (len(data)+mtu-1)/mtu)
	list := make([][]byte, n)
	for i := range list {
		f := whole
		f.Opcode = place(whole.Opcode, i == 0, i == n-1)
		f.PSN = (whole.PSN + uint32(i)) & 0xffffff
		f.AckReq, f.Solicited = whole.AckReq && i == n-1, whole.Solicited && i == n-1
		f.Payload = data[i*mtu : min(len(data), (i+1)*mtu)]
		list[i] = f.Build()
	}
	return list
}

// place is the opcode of the first, last or another packet of what op has all packets of.
func place(op wire.Opcode, first, last bool) wire.Opcode {
	first, last = first && op.Is(wire.Start), last && op.Is(wire.End)
	if first && last {
		return op
	}
	ops := [3]wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLast}
	switch {
	case op.Is(wire.IsWrite):
		ops = [3]wire.Opcode{wire.WriteFirst, wire.WriteMiddle, wire.WriteLast}
		if op.Is(wire.HasImm) {
			ops[2] = wire.WriteLastImm
		}
	case op.Is(wire.Response):
		ops = [3]wire.Opcode{wire.ReadRespFirst, wire.ReadRespMiddle, wire.ReadRespLast}
	case op.Is(wire.HasImm):
		ops[2] = wire.SendLastImm
	case op.Is(wire.HasInv):
		ops[2] = wire.SendLastInv
	}
	switch {
	case first:
		return op.Transport() | ops[0]
	case last:
		return op.Transport() | ops[2]
	}
	return op.Transport() | ops[1]
}

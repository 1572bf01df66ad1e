package pcap

import (
	"github.com/verbena-rdma/verbena/internal/wire"
)

// train splits a train (link.RxPacket.Train) into its packets: begin sets it, and each next makes one.
type train struct {
	head []byte // the headers, with a pad count of 0
	body []byte // the payload

	whole wire.Fields
	mtu   int
	i, n  int
}

// begin sets the train: data is BTH to pad, or the headers, followed by body.
func (t *train) begin(data, body []byte, mtu int) {
	t.whole = wire.Packet(data).Fields()
	if body != nil {
		t.whole.Payload = body
	}
	if mtu <= 0 || mtu > wire.MaxPayload {
		mtu = wire.MaxPayload
	}
	t.mtu, t.i = mtu, 0
	t.n = max(1, (len(t.whole.Payload)+mtu-1)/mtu)
}

// next makes the next packet; false if there is none.
func (t *train) next() bool {
	if t.i == t.n {
		return false
	}
	last := t.i == t.n-1
	psn := (t.whole.PSN + uint32(t.i)) & 0xffffff
	if t.i < 2 || last {
		f := t.whole
		f.Opcode = place(f.Opcode, t.i == 0, last)
		f.PSN = psn
		f.AckReq, f.Solicited = f.AckReq && last, f.Solicited && last
		f.Payload = nil
		t.head = f.Append(t.head[:0])
	} else { // the same headers as the previous packet
		wire.BTH(t.head).SetPSN(psn)
	}
	t.body = t.whole.Payload[t.i*t.mtu : min(len(t.whole.Payload), (t.i+1)*t.mtu)]
	t.i++
	return true
}

// place returns the opcode of the first, last or a middle packet of a train with opcode op.
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

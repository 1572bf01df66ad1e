package transport

import (
	"bytes"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// stepTrain in the first byte of a step makes it a packet as only shared memory brings it: one that stands for several,
// payload beside the headers, by reference to memory that is revoked before it is looked at or while it is copied.
const stepTrain = 0x40

// trainLens are lengths of payload in path MTUs and bytes beyond.
var trainLens = [16][2]int{
	{0, 0}, {0, 4}, {0, 8}, {0, 16}, {0, 32}, {0, 256}, {1, -4}, {1, 0},
	{1, 4}, {2, 0}, {2, 4}, {3, 0}, {5, 0}, {4, -4}, {8, 0}, {0, 40},
}

// bringTrain delivers a packet that is right in most respects: b[1] the opcode, b[2] its distance from the PSN that is
// expected, b[3] bits and the epoch, b[4] and b[5] the memory, b[6] the length that the RETH tells, b[7] the length and
// the content of the payload.
func (h *hostile) bringTrain(b [8]byte) {
	mtu, r := h.attr.MTU, h.target(int(b[4]))
	op := h.qp.prefix() | hostileOps[int(b[1])%len(hostileOps)]
	info := op.Info()
	if info.Len == 0 {
		return
	}
	n := max(0, trainLens[b[7]>>4][0]*mtu+trainLens[b[7]>>4][1])
	if info.MaxData < wire.MaxPayload {
		n = info.MaxData
	}
	data := bytes.Repeat([]byte{b[7] & 0x0F}, n)
	h.putTag(data, b)
	head := (&wire.Fields{
		Opcode: op, PKey: wire.DefaultPKey, DestQPN: stageQPN, PSN: psn.Add(h.qp.resp.epsn, int(int8(b[2]))/16),
		AckReq: b[3]&1 != 0, Solicited: b[3]&2 != 0, QKey: 5, SrcQPN: peerQPN, RKey: r.key, InvKey: r.key,
		Addr: r.base + uint64(b[5]&0x3F)*8, SRQN: 1 + uint32(b[3]>>5&1), Imm: 7,
		DMALen: []uint32{uint32(n), 0, uint32(2 * n), uint32(mtu), uint32(3 * mtu), 1 << 31, uint32(n) + 5, 8}[b[6]&7],
	}).Append(nil)
	if _, _, err := wire.ParseHead(head, len(head)+(n+3)&^3, link.MaxRef); err != nil {
		return
	}
	h.qp.OnPacket(0, &link.RxPacket{
		Data: head, Body: data, Src: peerAddr, Dst: stageAddr, HopLimit: 64,
		Train: b[0]&0x20 != 0 || n > mtu, Epoch: h.epoch(b[3] >> 6),
	})
}

// epoch is one that holds, one that is over, or one that ends when something is written where most receives begin.
func (h *hostile) epoch(kind byte) link.Epoch {
	switch kind {
	case 1:
		return voided()
	case 2:
		word := (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(h.regions[regLocal].Buf)))
		return link.NewEpoch(word, uint32(word.Load()))
	}
	return link.Epoch{}
}

// trainSeeds are scripts with trains and payload that is revoked.
func trainSeeds() [][]byte {
	op := func(o wire.Opcode) byte { return byte(slices.Index(hostileOps, o)) }
	post, tag := []byte{10, 1, 0, 0, 0, 6, 6, 6}, []byte{10, 5, 0, 0, 0, 6, 6, 6}
	train := func(o wire.Opcode, bits, reg, length, payload byte) []byte {
		return []byte{stepTrain | 0x20, op(o), 0, 1 | bits, reg, 0, length, payload}
	}
	const valid, void, copied = 0, 1 << 6, 2 << 6
	const eager = 3 << 3
	script := func(head string, steps ...[]byte) []byte { return append([]byte(head), bytes.Join(steps, nil)...) }
	kinds := []string{
		"\x00\x00\x80\x04", "\x04\x00\x80\x04", "\x02\x00\x80\x04", "\x06\x00\x80\x04", "\x10\x00\x80\x04",
		"\x20\x00\x80\x44",
	}
	send := func(bits, payload byte) []byte { return train(wire.SendOnly, bits, 0, 0, payload) }
	writeImm := func(bits, reg byte) []byte { return train(wire.WriteOnlyImm, bits, reg, 0, 0x91) }
	part := func(o wire.Opcode, bits, payload byte) []byte { return train(o, bits, 0, 0, payload) }
	reset := []byte{14, 1, 0, 0, 0, 0, 0, 0}
	var seeds [][]byte
	for _, k := range kinds {
		for _, epoch := range []byte{void, copied} {
			seeds = append(seeds,
				script(k, post, post, send(epoch, 0x71), send(valid, 0x71), send(valid, 0x01)),
				script(k, post, post, send(epoch, 0x71), writeImm(valid, regWrite)),
				script(k, post, post, writeImm(epoch, regLocal), writeImm(epoch, regWrite), send(valid, 0x71)),
				script(k, post, post, part(wire.SendFirst, valid, 0x91), part(wire.SendMiddle, epoch, 0x91),
					part(wire.SendLast, valid, 0x81)),
				script(k, post, tag, send(eager|epoch, 0x71), send(eager, 0x01)),
				script(k, post, tag, send(eager|epoch, 0x71), send(eager, 0x71)),
				script(k, post, tag, send(eager|epoch, 0x71), writeImm(valid, regWrite), reset, tag),
			)
		}
	}
	return seeds
}

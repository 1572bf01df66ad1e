package sock

import (
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// iWARP has no WRITE with immediate data: RFC 7306 adds it, and not every peer has that. There a message is a WRITE and
// a SEND of the message word, in the byte order of its sender (W-RS-10).

const wordLen = 4

// requests is the number of work requests of a message on a device.
func requests(dev *verbs.Context) int {
	if dev.Device().TransportType() == verbs.TransportIWARP {
		return 2
	}
	return 1
}

// wordRecvs are the receives that are posted together.
type wordRecvs struct {
	wrs  [16]verbs.RecvWR
	sges [16]verbs.SGE
}

// nextRecvs returns the next n receives, or fewer, but at least one. They are consumed in the order in which they are
// posted. mu is held.
//
// +checklocks:st.mu
func (st *Stream) nextRecvs(n int) []verbs.RecvWR {
	if st.res.words == nil {
		st.res.words = new(wordRecvs)
	}
	r := st.res.words
	list := r.wrs[:min(n, len(r.wrs))]
	for i := range list {
		at := st.nextRecv * wordLen
		r.sges[i] = st.res.mrs[recvsMR].SGE(at, wordLen)
		list[i] = verbs.RecvWR{WRID: uint64(at), SGList: r.sges[i : i+1]}
		if st.nextRecv++; st.nextRecv == len(st.res.recvs)/wordLen {
			st.nextRecv = 0
		}
	}
	return list
}

// postMessage posts a WRITE with immediate data, for which there is room, in the form of the device. mu is held.
//
// +checklocks:st.mu
func (st *Stream) postMessage(wr *verbs.SendWR) {
	if !st.words || wr.Opcode != verbs.WRRDMAWriteWithImm {
		st.post(wr)
		return
	}
	word := &st.res.word
	binary.NativeEndian.PutUint32(word[:], wr.ImmData)
	send := verbs.SendWR{WRID: wr.WRID, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: word[:]}
	if len(wr.SGList) == 0 && len(wr.Inline) == 0 {
		st.post(&send)
		return
	}
	write := *wr
	write.WRID, write.Opcode, write.ImmData = 0, verbs.WRRDMAWrite, 0 // the SEND's completion counts
	st.sentOnce = true
	if err := st.res.qp.PostSend(write, send); err != nil {
		st.fail(err)
	}
}

// word processes a received SEND. mu is held.
//
// +checklocks:st.mu
func (st *Stream) word(wc *verbs.WC) {
	switch {
	case st.state != streamConnected:
		return
	case wc.ByteLen != wordLen:
		st.breakOff(fmt.Errorf("a SEND of %d bytes: must be a message word of %d", wc.ByteLen, wordLen))
		return
	}
	if err := st.m.OnWord(st.res.recvs[wc.WRID:]); err != nil {
		st.breakOff(err)
	}
}

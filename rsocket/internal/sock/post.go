package sock

import "github.com/verbena-rdma/verbena/verbs"

// recvs are receives without memory: message words come as immediate data.
var recvs [64]verbs.RecvWR

// postRecvs posts a receive for each one that was consumed. mu is held.
//
// +checklocks:st.mu
func (st *Stream) postRecvs() error {
	for st.unposted > 0 {
		list := recvs[:min(st.unposted, len(recvs))]
		if st.words {
			list = st.nextRecvs(len(list))
		}
		n := len(list)
		if err := st.res.qp.PostRecv(list...); err != nil {
			return err
		}
		st.unposted -= n
	}
	return nil
}

// Completions say by their WRID what was posted, and how much of the send buffer it takes.
const (
	wrData = uint64(iota+1) << 32 // and maps and riowrite
	wrControl
	wrKeepalive
	wrKinds = ^uint64(1<<32 - 1)
)

// postControls posts the control messages that are due. mu is held.
//
// +checklocks:st.mu
func (st *Stream) postControls() {
	for {
		c, ok := st.m.NextControl()
		if !ok {
			return
		}
		st.postMessage(&verbs.SendWR{
			WRID: wrControl, Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: c.Payload[:c.N], ImmData: c.Word,
			RemoteAddr: c.Remote.Addr, RKey: c.Remote.Key,
		})
	}
}

// post posts a request, for which there is room. mu is held.
//
// +checklocks:st.mu
func (st *Stream) post(wr *verbs.SendWR) {
	st.sentOnce = true
	if err := st.res.qp.PostSend(*wr); err != nil {
		st.fail(err)
	}
}

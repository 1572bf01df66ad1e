package conformance

import "github.com/verbena-rdma/verbena/verbs"

// The fields of completions (section 45). Failures are in status.go.
var completionCases = []testCase{
	{"V_WC_01_V_WC_02_V_WC_03_X_WC_01_OpcodesFlagsAndLengths", completionFields},
}

func completionFields(t *T) {
	type row struct {
		op      verbs.WROpcode
		send    verbs.WCOpcode
		sendLen uint32
		recv    verbs.WCOpcode // 0: none
		flags   verbs.WCFlags
	}
	rows := []row{
		{verbs.WRSend, verbs.WCSend, 0, verbs.WCRecv, 0},
		{verbs.WRSendWithImm, verbs.WCSend, 0, verbs.WCRecv, verbs.WCWithImm},
		{verbs.WRRDMAWrite, verbs.WCRDMAWrite, 0, 0, 0},
		{verbs.WRRDMAWriteWithImm, verbs.WCRDMAWrite, 0, verbs.WCRecvRDMAWithImm, verbs.WCWithImm},
		{verbs.WRRDMARead, verbs.WCRDMARead, 16, 0, 0},
		{verbs.WRAtomicCmpAndSwp, verbs.WCCompSwap, 8, 0, 0},
		{verbs.WRAtomicFetchAndAdd, verbs.WCFetchAdd, 8, 0, 0},
	}
	for typ, n := range map[verbs.QPType]int{verbs.QPTypeRC: 7, verbs.QPTypeUC: 4, verbs.QPTypeUD: 2} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		for _, r := range rows[:n] {
			wr := a.rdma(r.op, 1, b, 0, 16)
			wr.ImmData = 0xdeadbeef
			flags, length, src := r.flags, uint32(16), uint32(0)
			if typ == verbs.QPTypeUD {
				wr = a.datagram(qa, qb, wr)
				flags, length, src = flags|verbs.WCGRH, 56, qa.QPN()
			}
			if r.recv != 0 {
				t.must(qb.PostRecv(b.recv(2, 0, 100)))
			}
			t.must(qa.PostSend(wr))
			s := t.good(a.sendCQ, 1)[0]
			if s.WRID != 1 || s.Opcode != r.send || s.QPNum != qa.QPN() || s.ByteLen != r.sendLen && r.sendLen != 0 ||
				s.Opcode&verbs.WCRecv != 0 {
				t.Errorf("%v %v: send completion %+v", typ, r.op, s)
			}
			if r.recv == 0 {
				continue
			}
			c := t.good(b.rcvQ, 1)[0]
			if c.WRID != 2 || c.Opcode != r.recv || c.Opcode&verbs.WCRecv == 0 || c.WCFlags != flags || c.ByteLen != length ||
				c.QPNum != qb.QPN() || c.SrcQP != src {
				t.Errorf("%v %v: receive completion %+v", typ, r.op, c)
			}
			if c.WCFlags&verbs.WCWithImm != 0 && c.ImmData != 0xdeadbeef {
				t.Errorf("%v %v: immediate %#x", typ, r.op, c.ImmData)
			}
		}
	}
}

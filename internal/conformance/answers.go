package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// answerCase is a response that a peer may send to a request of an RC QP, and the resulting status. A
// response may consist of several packets; offset is relative to the PSN of the request.
type answerCase struct {
	name    string
	op      verbs.WROpcode
	n       int
	answers []answer
	want    verbs.WCStatus
}

type answer struct {
	op       wire.Opcode
	offset   uint32
	syndrome uint8
	n        int
}

// answerTable assumes a path MTU of 1024.
var answerTable = []answerCase{
	{"REM_INV_REQ_ERR_Nak", verbs.WRSend, 8, []answer{{wire.Ack, 0, wire.SynInvReq, 0}}, verbs.WCRemInvReqErr},
	{"REM_ACCESS_ERR_Nak", verbs.WRRDMAWrite, 8, []answer{{wire.Ack, 0, wire.SynAccess, 0}}, verbs.WCRemAccessErr},
	{"REM_ACCESS_ERR_NakInTheMiddleOfARead", verbs.WRRDMARead, 3000,
		[]answer{{wire.ReadRespFirst, 0, wire.SynAck, 1024}, {wire.Ack, 1, wire.SynAccess, 0}}, verbs.WCRemAccessErr},
	{"REM_OP_ERR_Nak", verbs.WRAtomicFetchAndAdd, 8, []answer{{wire.Ack, 0, wire.SynOpErr, 0}}, verbs.WCRemOpErr},
	{"BAD_RESP_ERR_ReservedNakCode", verbs.WRSend, 8, []answer{{wire.Ack, 0, 0x6a, 0}}, verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReservedSyndrome", verbs.WRSend, 8, []answer{{wire.Ack, 0, 0x40, 0}}, verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReadDataForASend", verbs.WRSend, 8, []answer{{wire.ReadRespOnly, 0, wire.SynAck, 8}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReadDataForAnAtomic", verbs.WRAtomicCmpAndSwp, 8, []answer{{wire.ReadRespOnly, 0, wire.SynAck, 8}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_AtomicAckForARead", verbs.WRRDMARead, 8, []answer{{wire.AtomicAck, 0, wire.SynAck, 0}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_AtomicAckForAWrite", verbs.WRRDMAWrite, 8, []answer{{wire.AtomicAck, 0, wire.SynAck, 0}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReadThatBeginsInItsMiddle", verbs.WRRDMARead, 3000, []answer{{wire.ReadRespMiddle, 0, 0, 1024}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReadThatEndsEarly", verbs.WRRDMARead, 3000,
		[]answer{{wire.ReadRespFirst, 0, wire.SynAck, 1024}, {wire.ReadRespLast, 1, wire.SynAck, 1024}}, verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReadDataTooShort", verbs.WRRDMARead, 100, []answer{{wire.ReadRespOnly, 0, wire.SynAck, 96}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_ReadDataTooLong", verbs.WRRDMARead, 100, []answer{{wire.ReadRespOnly, 0, wire.SynAck, 104}},
		verbs.WCBadRespErr},
	{"BAD_RESP_ERR_DataWithANak", verbs.WRRDMARead, 8, []answer{{wire.ReadRespOnly, 0, wire.SynAccess, 8}},
		verbs.WCBadRespErr},
	{"SUCCESS_Read", verbs.WRRDMARead, 2500,
		[]answer{{wire.ReadRespFirst, 0, wire.SynAck, 1024}, {wire.ReadRespMiddle, 1, 0, 1024},
			{wire.ReadRespLast, 2, wire.SynAck, 452}}, verbs.WCSuccess},
	{"SUCCESS_AckWithCredits", verbs.WRSend, 8, []answer{{wire.Ack, 0, 0x0d, 0}}, verbs.WCSuccess},
}

// answerCases returns the cases of the table.
func answerCases() (cases []testCase) {
	for _, c := range answerTable {
		cases = append(cases, testCase{"V_WC_05_X_WC_02_Answer_" + c.name, c.run})
	}
	return append(cases, testCase{"V_WC_05_UnexpectedResponsesAreIgnored", unexpectedResponses})
}

func (c *answerCase) run(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.must(p.qp.PostRecv(e.recv(9, 0, 100)))
	behind := e.send(8, 0, 1)
	behind.Flags = 0
	wr := e.rdma(c.op, 7, e, 0, c.n)
	t.must(p.qp.PostSend(wr, behind))
	psn := p.next().PSN
	for _, a := range c.answers {
		p.answer(a.op, psn+a.offset, a.syndrome, make([]byte, a.n))
	}
	wc := t.poll(e.sendCQ, 1)[0]
	if wc.WRID != 7 || wc.Status != c.want {
		t.Errorf("request %d completed with %s, want request 7 with %s", wc.WRID, wc.Status.Name(), c.want.Name())
	}
	if c.want == verbs.WCSuccess {
		t.is(p.qp, verbs.QPSRTS)
		return
	}
	same(t, "the next send", t.ids(t.poll(e.sendCQ, 1), verbs.WCWRFlushErr), "[8]")
	same(t, "the receive", t.ids(t.poll(e.rcvQ, 1), verbs.WCWRFlushErr), "[9]")
	t.is(p.qp, verbs.QPSErr)
	e.noEvent("the completion reports it")
}

// unexpectedResponses sends responses that no request waits for: duplicates and responses to unknown
// requests.
func unexpectedResponses(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	e.blank()
	t.must(p.qp.PostSend(e.send(1, 0, 8)))
	psn := p.expect(wire.SendOnly).PSN
	for _, a := range []answer{
		{wire.Ack, 1, wire.SynAck, 0}, {wire.Ack, 0x7fffff, wire.SynAccess, 0}, {wire.ReadRespOnly, 3, wire.SynAck, 100},
		{wire.AtomicAck, 0xffffff, wire.SynAck, 0}, {wire.Ack, 0xfffffe, wire.SynRNR | 1, 0},
	} {
		p.answer(a.op, psn+a.offset, a.syndrome, make([]byte, a.n))
	}
	t.silent("none of them responds to the SEND", e.sendCQ)
	p.answer(wire.Ack, psn, wire.SynAck, nil)
	t.good(e.sendCQ, 1)
	p.answer(wire.Ack, psn, wire.SynInvReq, nil) // too late
	t.silent("the SEND is complete", e.sendCQ)
	t.is(p.qp, verbs.QPSRTS)
	if !untouched(e.buf) {
		t.Error("an unexpected response was written to memory")
	}
}

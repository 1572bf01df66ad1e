package verbs

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// wantPost checks the index of the first bad request, and the error as refused does.
func wantPost(t *testing.T, err error, index int, errno Errno, parts ...string) {
	t.Helper()
	refused(t, err, errno, parts...)
	var post *PostError
	if !errors.As(err, &post) || post.Index != index {
		t.Fatalf("%v: want index %d", err, index)
	}
}

// goodSend is a request with an opcode that has all that it needs.
func goodSend(t *testing.T, qp *QP, op WROpcode) SendWR {
	if op == WRTSO && op.in(qp.opcodes) {
		qp.maxTSOHeader, qp.maxTSO = 54, 1000 // as if it was made for it
	}
	wr := SendWR{Opcode: op, SGList: []SGE{{Length: 8}}, TSO: &TSO{Hdr: make([]byte, 54), MSS: 4},
		Flush: Flush{Type: FlushGlobal}}
	if qp.Type() == QPTypeUD {
		attr := goodAH()
		wr.AH = must(qp.PD().CreateAH(&attr))(t)
	}
	if op == WRBindMW {
		mw := must(qp.PD().AllocMW(MWType2))(t)
		wr.MW, wr.RKey = mw, IncRKey(mw.RKey())
		wr.BindInfo = &MWBindInfo{MR: must(qp.PD().RegMR(make([]byte, 8), AccessMWBind))(t)}
	}
	return wr
}

// The driver is not asked to post nothing.
func TestEmptyListsDoNotReachTheDriver(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
	counted := &countedQP{fakeQP: drv}
	qp.drv = counted
	bad := SendWR{Opcode: WRTSO}
	ok(t, qp.PostSend())
	ok(t, qp.PostRecv())
	wantPost(t, qp.PostSend(bad), 0, EINVAL)
	wantPost(t, qp.PostRecv(RecvWR{SGList: make([]SGE, 3)}), 0, EINVAL)
	if counted.posts != 0 {
		t.Errorf("%d calls", counted.posts)
	}
	wantPost(t, qp.PostSend(SendWR{Opcode: WRSend}, bad), 1, EINVAL)
	wantPost(t, qp.PostRecv(RecvWR{}, RecvWR{SGList: make([]SGE, 3)}), 1, EINVAL)
	if counted.posts != 2 {
		t.Errorf("%d calls", counted.posts)
	}
}

// countedQP counts the calls that post requests.
type countedQP struct {
	*fakeQP
	posts int
}

func (q *countedQP) PostSend(wrs []SendWR) (int, error) { q.posts++; return q.fakeQP.PostSend(wrs) }
func (q *countedQP) PostRecv(wrs []RecvWR) (int, error) { q.posts++; return q.fakeQP.PostRecv(wrs) }

// TestV_QPS_04_PostingByState is also V-RECV-07, V-SEND-16 and the first two rows of the table in section 4.
func TestV_QPS_04_PostingByState(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD} {
		for s := QPSReset; s <= QPSErr; s++ {
			qp, drv := newQPIn(t, typ, s)
			send, recv := s >= QPSRTS, s >= QPSInit
			err := qp.PostSend(goodSend(t, qp, WRSend))
			if send {
				ok(t, err)
			} else {
				wantPost(t, err, 0, EINVAL, "post_send: not possible in "+s.String())
			}
			if err = qp.PostRecv(RecvWR{}); recv {
				ok(t, err)
			} else {
				wantPost(t, err, 0, EINVAL, "post_recv: not possible in RESET; move the QP to INIT first")
			}
			if (len(drv.sent) == 1) != send || (len(drv.received) == 1) != recv {
				t.Errorf("%v in %v: sent %v, received %v", typ, s, drv.sent, drv.received)
			}
		}
	}
}

// specOpcodes is V-SEND-07 as it stands in the specification, and FLUSH and ATOMIC_WRITE, which are younger than the
// manual (D-41).
const specOpcodes = `
| SEND | y | y | y | y | y |
| SEND_WITH_IMM | y | y | y | y | |
| RDMA_WRITE | | y | y | y | |
| RDMA_WRITE_WITH_IMM | | y | y | y | |
| RDMA_READ | | | y | y | |
| ATOMIC_CMP_AND_SWP | | | y | y | |
| ATOMIC_FETCH_AND_ADD | | | y | y | |
| LOCAL_INV | | y | y | y | |
| BIND_MW | | y | y | y | |
| SEND_WITH_INV | | y | y | y | |
| TSO | y | | | | y |
| FLUSH | | | y | y | |
| ATOMIC_WRITE | | | y | y | |`

func TestV_SEND_07_OpcodeByType(t *testing.T) { // V-TR-01
	columns := []QPType{QPTypeUD, QPTypeUC, QPTypeRC, QPTypeXRCSend, QPTypeRawPacket}
	allowed := map[QPType]map[string]bool{}
	for _, typ := range columns {
		allowed[typ] = map[string]bool{}
	}
	for _, line := range strings.Split(strings.TrimSpace(specOpcodes), "\n") {
		cells := strings.Split(line, "|")
		for i, typ := range columns {
			allowed[typ][strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[i+2]) == "y"
		}
	}
	for _, typ := range columns {
		qp, drv := newQPIn(t, typ, QPSRTS)
		for op := range WROpcode(16) {
			drv.sent = nil
			err := qp.PostSend(goodSend(t, qp, op))
			if allowed[typ][op.String()] {
				ok(t, err)
				continue
			}
			wantPost(t, err, 0, EINVAL, op.String()+": not possible on a QP of type "+typ.String()+", which has ")
			if len(drv.sent) != 0 {
				t.Errorf("%v on %v reached the driver", op, typ)
			}
		}
		for _, op := range []WROpcode{16, 31, 32, 64, 1<<32 - 1} {
			wantPost(t, qp.PostSend(SendWR{Opcode: op}), 0, EINVAL)
		}
	}
	qp, _ := newQPIn(t, QPTypeXRCRecv, QPSRTS)
	wantPost(t, qp.PostSend(SendWR{Opcode: WRSend}), 0, EINVAL, "not possible on a QP of type XRC_RECV")
}

// TestV_SEND_Flags is V-SEND-09 to V-SEND-13: every flag with every opcode on every type.
func TestV_SEND_Flags(t *testing.T) {
	sends := []WROpcode{WRSend, WRSendWithImm, WRSendWithInv}
	has := func(list []WROpcode, op WROpcode) bool {
		for _, o := range list {
			if o == op {
				return true
			}
		}
		return false
	}
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeXRCSend} {
		qp, _ := newQPIn(t, typ, QPSRTS)
		for op := range WROpcode(11) {
			if !op.in(qp.opcodes) {
				continue
			}
			good := map[SendFlags]bool{
				0:             true,
				SendSignaled:  true,
				SendFence:     typ == QPTypeRC || typ == QPTypeXRCSend,
				SendSolicited: has(sends, op) || op == WRRDMAWriteWithImm,
				SendInline:    has(sends, op) || op == WRRDMAWrite || op == WRRDMAWriteWithImm,
				SendIPCsum:    false, // the fake device has no checksum offload
				1 << 5:        false,
				1 << 31:       false,
			}
			for flag, want := range good {
				wr := goodSend(t, qp, op)
				wr.Flags = flag | SendSignaled
				err := qp.PostSend(wr)
				if want {
					ok(t, err)
				} else {
					wantPost(t, err, 0, EINVAL, op.String()+": ", flag.String())
				}
			}
		}
	}
}

func TestV_SEND_13_ChecksumCapability(t *testing.T) {
	for typ, need := range map[QPType]DeviceCapFlags{QPTypeRC: DeviceRCIPCsum, QPTypeUD: DeviceUDIPCsum,
		QPTypeRawPacket: DeviceRawIPCsum} {
		for _, c := range []DeviceCapFlags{DeviceRCIPCsum, DeviceUDIPCsum, DeviceRawIPCsum} {
			dev := newFakeDevice()
			dev.attr.DeviceCapFlags = c
			vctx, _ := openDevice(t, dev)
			qp, drv := newQP(t, newPD(t, vctx), typ)
			forceState(qp, drv, QPSRTS)
			wr := goodSend(t, qp, WRSend)
			wr.Flags = SendIPCsum
			if err := qp.PostSend(wr); (err == nil) != (c == need) {
				t.Errorf("%v with %v: %v", typ, c, err)
			}
		}
	}
}

func TestV_SEND_11_InlineLength(t *testing.T) { // the QP was made for 64 bytes
	qp, _ := newQPIn(t, QPTypeRC, QPSRTS)
	for _, op := range []WROpcode{WRSend, WRRDMAWrite} {
		for n, good := range map[int]bool{0: true, 1: true, 64: true, 65: false, 1 << 20: false} {
			asData := SendWR{Opcode: op, Flags: SendInline, Inline: make([]byte, n)}
			asList := SendWR{Opcode: op, Flags: SendInline, SGList: []SGE{{Length: uint32(n / 2)}, {Length: uint32(n - n/2)}}}
			for _, wr := range []SendWR{asData, asList} {
				err := qp.PostSend(wr)
				if good {
					ok(t, err)
				} else {
					wantPost(t, err, 0, EINVAL, "bytes of inline data: must be 0 to 64")
				}
			}
		}
	}
	// must not wrap around
	huge := SendWR{Opcode: WRSend, Flags: SendInline, SGList: []SGE{{Length: 1<<32 - 1}, {Length: 1}}}
	wantPost(t, qp.PostSend(huge), 0, EINVAL, "4294967296 bytes of inline data")
	wantPost(t, qp.PostSend(SendWR{Opcode: WRSend, Inline: []byte("x")}), 0, EINVAL, "the flag INLINE is missing")
	both := SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("x"), SGList: []SGE{{Length: 1}}}
	wantPost(t, qp.PostSend(both), 0, EINVAL, "give one of them")
}

func TestX_SEND_01_SGEs(t *testing.T) {
	qp, _ := newQPIn(t, QPTypeRC, QPSRTS) // made for 4
	for n := range 6 {
		err := qp.PostSend(SendWR{Opcode: WRRDMAWrite, SGList: make([]SGE, n)})
		if n <= 4 {
			ok(t, err)
		} else {
			wantPost(t, err, 0, EINVAL, "5 SGEs: must be 0 to 4")
		}
	}
	qp.ctx.attr.MaxSGERd = 1 // V-QDEV: max_sge_rd is for RDMA READ
	ok(t, qp.PostSend(SendWR{Opcode: WRRDMARead, SGList: make([]SGE, 1)}))
	wantPost(t, qp.PostSend(SendWR{Opcode: WRRDMARead, SGList: make([]SGE, 2)}), 0, EINVAL, "1 (MaxSGERd)")
}

func TestX_RECV_01_SGEs(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSInit) // made for 2
	for n := range 4 {
		err := qp.PostRecv(RecvWR{SGList: make([]SGE, n)})
		if n <= 2 {
			ok(t, err)
		} else {
			wantPost(t, err, 0, EINVAL, "3 SGEs: must be 0 to 2")
		}
	}
	if len(drv.received) != 3 {
		t.Errorf("%d posted", len(drv.received))
	}
}

func TestV_SEND_14_DestinationOfDatagrams(t *testing.T) {
	qp, _ := newQPIn(t, QPTypeUD, QPSRTS)
	wr := goodSend(t, qp, WRSend)
	wr.RemoteQPN = 0xffffff
	ok(t, qp.PostSend(wr))
	wr.RemoteQPN++
	wantPost(t, qp.PostSend(wr), 0, EINVAL, "QP number 0x1000000: must be 0 to 0xffffff")
	wr.RemoteQPN = 1
	ok(t, wr.AH.Close())
	wantPost(t, qp.PostSend(wr), 0, EINVAL, "closed") // V-AH-11
	wr.AH = nil
	wantPost(t, qp.PostSend(wr), 0, EINVAL, "the address handle is missing")
	wr.AH = &AH{}
	wantPost(t, qp.PostSend(wr), 0, EINVAL, "another PD")
	rc, _ := newQPIn(t, QPTypeRC, QPSRTS)
	ok(t, rc.PostSend(SendWR{Opcode: WRSend, RemoteQPN: 1 << 24})) // what an opcode does not use is ignored
}

func TestV_SEND_15_RemoteSRQN(t *testing.T) {
	qp, _ := newQPIn(t, QPTypeXRCSend, QPSRTS)
	ok(t, qp.PostSend(SendWR{Opcode: WRSend, RemoteSRQN: 0xffffff}))
	wantPost(t, qp.PostSend(SendWR{Opcode: WRSend, RemoteSRQN: 1 << 24}), 0, EINVAL, "0 to 0xffffff")
}

func TestX_SEND_02_Atomics(t *testing.T) {
	for _, op := range []WROpcode{WRAtomicCmpAndSwp, WRAtomicFetchAndAdd} {
		qp, _ := newQPIn(t, QPTypeRC, QPSRTS)
		ok(t, qp.PostSend(SendWR{Opcode: op, SGList: []SGE{{Length: 8}}}))
		wantPost(t, qp.PostSend(SendWR{Opcode: op, SGList: []SGE{{Length: 7}}}), 0, EINVAL,
			"7 bytes for the result: must be 8 or more")
		wantPost(t, qp.PostSend(SendWR{Opcode: op}), 0, EINVAL)
		qp.ctx.attr.AtomicCap = AtomicNone
		wantPost(t, qp.PostSend(SendWR{Opcode: op, SGList: []SGE{{Length: 8}}}), 0, ENOSYS, "no atomics")
	}
}

// TestV_SEND_01_StopsAtTheFirstBadOne puts a bad request in every place of a list; also V-RECV-01.
func TestV_SEND_01_StopsAtTheFirstBadOne(t *testing.T) {
	const n = 5
	for bad := range n {
		qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
		sends, recvs := make([]SendWR, n), make([]RecvWR, n)
		for i := range n {
			sends[i], recvs[i] = SendWR{WRID: uint64(i), Opcode: WRSend}, RecvWR{WRID: uint64(i)}
		}
		sends[bad].Opcode = WRTSO
		recvs[bad].SGList = make([]SGE, 3)
		wantPost(t, qp.PostSend(sends...), bad, EINVAL, "TSO")
		wantPost(t, qp.PostRecv(recvs...), bad, EINVAL, "3 SGEs")
		if len(drv.sent) != bad || len(drv.received) != bad {
			t.Errorf("bad %d: sent %v, received %v", bad, drv.sent, drv.received)
		}
	}
}

func TestX_SEND_01_FullQueue(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
	drv.room = 2
	sends := []SendWR{{WRID: 1, Opcode: WRSend}, {WRID: 2, Opcode: WRSend}, {WRID: 3, Opcode: WRSend}, {Opcode: WRTSO}}
	wantPost(t, qp.PostSend(sends...), 2, ENOMEM, "request 2: post_send", "RC QP 0x000012")
	wantPost(t, qp.PostRecv(RecvWR{}, RecvWR{}, RecvWR{}), 2, ENOMEM, "request 2: post_recv")
}

func TestPostNothing(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
	drv.onSend = func([]SendWR) { t.Error("the driver was asked") }
	ok(t, qp.PostSend())
	ok(t, qp.PostRecv())
}

func TestV_RECV_05_QPWithSRQ(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	srq, _ := newSRQ(t, pd)
	cq, _ := newCQ(t, vctx, nil)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(t)
	forceState(qp, qp.drv.(*fakeQP), QPSInit)
	wantPost(t, qp.PostRecv(RecvWR{}), 0, EINVAL, "the QP has an SRQ; post to the SRQ")
}

func TestV_SEND_04_DriverSeesTheRequest(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeUD, QPSRTS)
	want := SendWR{
		WRID: 1, Opcode: WRSendWithImm, Flags: SendSignaled | SendSolicited, SGList: []SGE{{1, 2, 3}, {4, 5, 6}},
		ImmData: 7, InvalidateRKey: 8,
		RemoteAddr: 9, RKey: 10, CompareAdd: 11, Swap: 12, AH: goodSend(t, qp, WRSend).AH, RemoteQPN: 13, RemoteQKey: 14,
		RemoteSRQN: 15,
	}
	seen := false
	drv.onSend = func(wrs []SendWR) { seen = len(wrs) == 1 && reflect.DeepEqual(wrs[0], want) }
	ok(t, qp.PostSend(want))
	if !seen {
		t.Error("the driver saw something else")
	}
}

// TestPostRandomRequests throws requests of any kind at QPs of any type: an error or not, never a panic, and nothing
// that the table forbids reaches the driver.
func TestPostRandomRequests(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeXRCSend, QPTypeRawPacket} {
		qp, drv := newQPIn(t, typ, QPSRTS)
		ah := goodSend(t, qp, WRSend).AH
		drv.onSend = func(wrs []SendWR) {
			for i := range wrs {
				if !wrs[i].Opcode.in(qp.opcodes) || len(wrs[i].SGList) > 4 || wrs[i].Flags&^sendFlagsAll != 0 {
					t.Errorf("%v: %+v", typ, wrs[i])
				}
			}
		}
		for range 2000 {
			wrs := make([]SendWR, rnd.IntN(4))
			for i := range wrs {
				wrs[i] = SendWR{Opcode: WROpcode(rnd.Uint32N(20)), Flags: SendFlags(rnd.Uint32N(64)),
					SGList: make([]SGE, rnd.IntN(7))}
				if rnd.IntN(3) == 0 {
					wrs[i].Inline = make([]byte, rnd.IntN(200))
				}
				if rnd.IntN(2) == 0 {
					wrs[i].AH = ah
				}
			}
			err := qp.PostSend(wrs...)
			var post *PostError
			if err != nil && (!errors.As(err, &post) || post.Index >= len(wrs)) {
				t.Fatal(err)
			}
		}
	}
}

package verbs

import (
	"fmt"
	"slices"
	"sync"
)

// QPEx posts send requests to a QP step by step (struct ibv_qp_ex):
//
//	x.Start()
//	x.WRID, x.WRFlags = 1, 0
//	x.RDMAWrite(rkey, addr)
//	x.SetSGE(mr.SGE(0, 64))
//	x.WRID, x.WRFlags = 2, verbs.SendSignaled
//	x.RDMAWriteImm(rkey, addr+64, 5)
//	x.SetSGE(mr.SGE(64, 64))
//	err := x.Complete()
//
// A builder, such as RDMAWrite, begins a request with the current WRID and WRFlags; setters complete it: one of SetSGE,
// SetSGEList, SetInlineData and SetInlineDataList for a request with data, SetUDAddr on a UD QP, and SetXRCSRQN on an
// XRC_SEND QP. LocalInv and BindMW take no setter, Flush and AtomicWrite only SetXRCSRQN. Builders and setters return
// nothing: after a fault Complete fails and posts none of the requests built since Start. Nothing is posted before
// Complete or after Abort.
//
// From Start to Complete or Abort the QPEx is locked: other goroutines wait in Start, unless the QP was created in a
// parent domain with a thread domain. QP.PostSend may be used concurrently.
type QPEx struct {
	WRID    uint64    // of the next request
	WRFlags SendFlags // of the next request: SendFence, SendSignaled, SendSolicited, SendIPCsum

	qp       *QP
	drv      DriverQP
	ops      uint32 // permitted operations, as bits of opcodes
	addr     setters
	unlocked bool
	mu       sync.Mutex // from Start to Complete or Abort, unless unlocked

	open    bool
	holds   bool   // a request names an AH or MW
	may     uint32 // ops, or 0 while no request can begin
	room    int    // capacity of wrs, at most MaxSendWR
	missing setters
	fault   error // the first one
	cur     *SendWR
	wrs     []SendWR
	sges    []SGE // of wrs
	data    []byte
	binds   []MWBindInfo
	tsos    []TSO
	none    SendWR // written by setters without a request
}

// setters is a set of the kinds of setters.
type setters uint8

const (
	setData setters = 1 << iota
	setUDAddr
	setXRCSRQN
)

func (s setters) String() string {
	return flagsOf([]string{"the data (SetSGE and others)", "the address (SetUDAddr)", "the SRQ (SetXRCSRQN)"},
		uint64(s), ", ")
}

// Initial capacity of a QPEx.
const (
	firstRequests = 16
	firstInline   = 4096 // bytes, or one request's
)

func newQPEx(qp *QP, ops SendOpsFlags) *QPEx {
	x := &QPEx{qp: qp, drv: qp.drv, ops: ops.opcodes(), unlocked: qp.pd.td != nil}
	switch qp.init.Type {
	case QPTypeUD:
		x.addr = setUDAddr
	case QPTypeXRCSend:
		x.addr = setXRCSRQN
	}
	n, c := min(firstRequests, int(qp.init.Cap.MaxSendWR)), &qp.init.Cap
	x.wrs, x.room = make([]SendWR, 0, n), n
	x.sges = make([]SGE, 0, n*int(c.MaxSendSGE))
	x.data = make([]byte, 0, max(int(c.MaxInlineData), min(n*int(c.MaxInlineData), firstInline)))
	x.cur = &x.none
	return x
}

// QP returns the QP of the QPEx (qp_base of struct ibv_qp_ex).
func (x *QPEx) QP() *QP { return x.qp }

// Start begins a list of requests (ibv_wr_start). It waits while another goroutine builds a list. A second Start
// without Complete or Abort blocks for ever; with a thread domain it does not block, and continues the list.
func (x *QPEx) Start() { x.start() }

// start is Start. Its annotation is not for the reader of Start's documentation.
//
// +checklocksignore: holds mu until Complete or Abort
func (x *QPEx) start() {
	if !x.unlocked {
		x.mu.Lock()
	}
	x.open, x.may = true, x.ops
}

// Complete posts the requests built since Start: all of them, or nothing if there is an error (ibv_wr_complete).
// EINVAL if a request is incomplete or does not fit the QP, or the QP is in RESET, INIT or RTR. ENOMEM if the send
// queue has no room for all. EOPNOTSUPP for an operation that the device does not support.
func (x *QPEx) Complete() error {
	if !x.open {
		return newError("wr_complete", x.qp.obj(), EINVAL, "no list is open; call Start first")
	}
	err := x.post()
	x.close()
	return err
}

// Abort drops the requests built since Start (ibv_wr_abort).
func (x *QPEx) Abort() {
	if x.open {
		x.close()
	}
}

// close ends the list that Start began.
//
// +checklocksignore: unlocks for Start
func (x *QPEx) close() {
	if x.holds {
		clear(x.wrs)
		clear(x.binds)
		x.holds = false
	}
	x.wrs, x.sges, x.data, x.binds, x.tsos = x.wrs[:0], x.sges[:0], x.data[:0], x.binds[:0], x.tsos[:0]
	x.open, x.may, x.missing, x.cur = false, 0, 0, &x.none
	if x.fault != nil {
		x.fault = nil
	}
	if !x.unlocked {
		x.mu.Unlock()
	}
}

// Post posts requests of PostSend's form as one list: all of them, or nothing if there is an error (ibv_wr_start and
// ibv_wr_complete in one call). Like PostSend it leaves wrs and their lists to the caller, allocates nothing and is
// safe for concurrent use. It is independent of a list between Start and Complete. The errors are those of Complete.
// EOPNOTSUPP for an opcode that is not in SendOpsFlags.
func (x *QPEx) Post(wrs ...SendWR) error {
	return x.postAll(noescape(wrs))
}

func (x *QPEx) postAll(wrs []SendWR) error {
	binds := false
	for i := range wrs {
		if !wrs[i].Opcode.in(x.ops) {
			return x.refused(wrs, i, EOPNOTSUPP)
		}
		binds = binds || wrs[i].Opcode == WRBindMW
	}
	return x.postList(wrs, binds)
}

// post checks the list and passes it to the driver.
func (x *QPEx) post() error {
	x.finish()
	if x.fault != nil {
		return x.fault
	}
	return x.postList(x.wrs, x.holds)
}

// postList posts all requests or none. holds: there may be requests that bind memory windows.
func (x *QPEx) postList(wrs []SendWR, holds bool) error {
	qp := x.qp
	if s := qp.word.Load() & stateMask; s < uint64(QPSRTS) || s > uint64(QPSErr) {
		return qp.stateError("wr_complete")
	}
	for i := range wrs {
		if err := qp.checkSend(&wrs[i]); err != nil {
			return x.refused(wrs, i, err)
		}
	}
	if len(wrs) == 0 {
		return nil
	}
	if n, err := x.drv.PostSendAll(wrs); err != nil {
		return x.refused(wrs, n, err)
	}
	if holds {
		boundMWs(wrs)
	}
	return nil
}

// refused returns the error of a list whose request i is invalid.
func (x *QPEx) refused(wrs []SendWR, i int, err error) error {
	e := driverError("wr_complete", x.qp.obj(), err).(*Error)
	if i < len(wrs) {
		e.Detail = fmt.Sprintf("request %d of %d is invalid; none is posted", i, len(wrs))
	}
	return e
}

// fail records the first fault and ends the current request.
func (x *QPEx) fail(errno Errno, format string, args ...any) {
	if x.open && x.fault == nil {
		x.fault = newError("wr_complete", x.qp.obj(), errno, "request %d: "+format, append([]any{len(x.wrs)}, args...)...)
	}
	x.cur, x.may, x.missing = &x.none, 0, 0
}

// finish checks that the last request is complete.
func (x *QPEx) finish() {
	if x.missing != 0 {
		op := x.drop()
		x.fail(EINVAL, "%v: %v is missing", op, x.missing)
	}
}

// begin begins a request.
func (x *QPEx) begin(op WROpcode, needs setters) *SendWR {
	n := len(x.wrs)
	if !op.in(x.may) || x.missing != 0 || n >= x.room || x.WRFlags&SendInline != 0 {
		if !x.admit(op) {
			return &x.none
		}
	}
	x.wrs = x.wrs[:n+1]
	wr := &x.wrs[n]
	*wr = SendWR{}
	wr.WRID, wr.Opcode, wr.Flags = x.WRID, op, x.WRFlags
	x.cur, x.missing = wr, needs
	return wr
}

// admit is the slow path of begin. It records why a request cannot be begun, or makes room for it.
func (x *QPEx) admit(op WROpcode) bool {
	x.finish()
	most := int(x.qp.sendRoom.Load())
	switch n := len(x.wrs); {
	case !x.open || x.fault != nil:
		return false
	case !op.in(x.ops):
		x.fail(EINVAL, "%v: must be of %v (SendOpsFlags)", op, opcodeSet(x.ops))
		return false
	case n >= most:
		x.fail(ENOMEM, "%v: the send queue has room for %d", op, n)
		return false
	case x.WRFlags&SendInline != 0:
		x.fail(EINVAL, "%v: the flag INLINE must not be set; use SetInlineData", op)
		return false
	}
	x.wrs = slices.Grow(x.wrs, 1)
	x.room = min(cap(x.wrs), most)
	return true
}

// set returns the current request for a setter.
func (x *QPEx) set(s setters) *SendWR {
	if x.missing&s == 0 {
		x.needless(s)
	}
	x.missing &^= s
	return x.cur
}

// needless records the fault of a setter that the request does not need.
func (x *QPEx) needless(s setters) {
	if x.cur == &x.none {
		x.fail(EINVAL, "%v is set before a request was begun", s)
		return
	}
	x.fail(EINVAL, "%v: %v is set twice or does not apply", x.drop(), s)
}

// drop removes the last request.
func (x *QPEx) drop() WROpcode {
	op := x.cur.Opcode
	*x.cur = SendWR{}
	x.wrs = x.wrs[:len(x.wrs)-1]
	return op
}

// rdma is begin for operations on the peer's memory.
func (x *QPEx) rdma(op WROpcode, rkey uint32, addr uint64) *SendWR {
	wr := x.begin(op, setData|x.addr)
	wr.RKey, wr.RemoteAddr = rkey, addr
	return wr
}

// RDMARead reads from the peer's memory (ibv_wr_rdma_read).
func (x *QPEx) RDMARead(rkey uint32, remoteAddr uint64) { x.rdma(WRRDMARead, rkey, remoteAddr) }

// RDMAWrite writes into the peer's memory (ibv_wr_rdma_write).
func (x *QPEx) RDMAWrite(rkey uint32, remoteAddr uint64) { x.rdma(WRRDMAWrite, rkey, remoteAddr) }

// RDMAWriteImm is RDMAWrite that completes a receive of the peer with imm, in host order (ibv_wr_rdma_write_imm).
func (x *QPEx) RDMAWriteImm(rkey uint32, remoteAddr uint64, imm uint32) {
	x.rdma(WRRDMAWriteWithImm, rkey, remoteAddr).ImmData = imm
}

// AtomicCmpSwp sets 8 bytes of the peer's memory to swap if they equal compare, and returns the old value in the
// request's SGE (ibv_wr_atomic_cmp_swp).
func (x *QPEx) AtomicCmpSwp(rkey uint32, remoteAddr, compare, swap uint64) {
	wr := x.rdma(WRAtomicCmpAndSwp, rkey, remoteAddr)
	wr.CompareAdd, wr.Swap = compare, swap
}

// AtomicFetchAdd adds to 8 bytes of the peer's memory and returns the old value in the request's SGE
// (ibv_wr_atomic_fetch_add).
func (x *QPEx) AtomicFetchAdd(rkey uint32, remoteAddr, add uint64) {
	x.rdma(WRAtomicFetchAndAdd, rkey, remoteAddr).CompareAdd = add
}

// Send sends a message (ibv_wr_send).
func (x *QPEx) Send() { x.begin(WRSend, setData|x.addr) }

// SendImm sends a message with imm, in host order (ibv_wr_send_imm). The peer's completion is a WCRecv with WCWithImm.
func (x *QPEx) SendImm(imm uint32) { x.begin(WRSendWithImm, setData|x.addr).ImmData = imm }

// SendInv sends a message that invalidates a key of the peer before its completion (ibv_wr_send_inv).
func (x *QPEx) SendInv(invalidateRKey uint32) {
	x.begin(WRSendWithInv, setData|x.addr).InvalidateRKey = invalidateRKey
}

// SendTSO sends the data in pieces of mss bytes, hdr in front of each (ibv_wr_send_tso). hdr may be reused at once.
func (x *QPEx) SendTSO(hdr []byte, mss uint16) {
	wr, from := x.begin(WRTSO, setData|x.addr), len(x.data)
	if wr == &x.none {
		return
	}
	x.data = append(x.data, hdr...)
	x.tsos = append(x.tsos, TSO{Hdr: x.data[from:len(x.data):len(x.data)], MSS: mss})
	wr.TSO = &x.tsos[len(x.tsos)-1]
}

// Flush asks the peer to make earlier writes visible or persistent, as typ says, and completes afterwards
// (ibv_wr_flush). level selects n bytes, 0 to 2^31, or the whole region. The peer's QP and region need
// AccessFlushGlobal or AccessFlushPersistent.
func (x *QPEx) Flush(rkey uint32, remoteAddr uint64, n uint32, typ PlacementType, level SelectivityLevel) {
	wr := x.begin(WRFlush, x.addr)
	wr.RKey, wr.RemoteAddr, wr.Flush = rkey, remoteAddr, Flush{Length: n, Type: typ, Level: level}
}

// AtomicWrite stores 8 bytes in the peer's memory atomically, data[0] at the lowest address (ibv_wr_atomic_write).
// remoteAddr must be a multiple of 8. The peer's QP and region need AccessRemoteWrite.
func (x *QPEx) AtomicWrite(rkey uint32, remoteAddr uint64, data [8]byte) {
	wr, from := x.begin(WRAtomicWrite, x.addr), len(x.data)
	if wr == &x.none {
		return
	}
	x.data = append(x.data, data[:]...)
	wr.RKey, wr.RemoteAddr = rkey, remoteAddr
	wr.Flags, wr.Inline = wr.Flags|SendInline, x.data[from:len(x.data):len(x.data)]
}

// LocalInv invalidates a window of type 2 by its key (ibv_wr_local_inv). It takes no setter.
func (x *QPEx) LocalInv(invalidateRKey uint32) {
	x.begin(WRLocalInv, 0).InvalidateRKey = invalidateRKey
}

// BindMW binds a window of type 2 to memory, under the key rkey (ibv_wr_bind_mw). It takes no setter. info may be
// reused at once.
func (x *QPEx) BindMW(mw *MW, rkey uint32, info *MWBindInfo) {
	wr := x.begin(WRBindMW, 0)
	if wr == &x.none {
		return
	}
	wr.MW, wr.RKey, x.holds = mw, rkey, true
	if info != nil {
		x.binds = append(x.binds, *info)
		wr.BindInfo = &x.binds[len(x.binds)-1]
	}
}

// SetSGE sets the memory of the request's data or result (ibv_wr_set_sge). The memory belongs to the device until the
// completion is polled.
func (x *QPEx) SetSGE(sge SGE) {
	if x.missing&setData == 0 {
		x.needless(setData)
		return
	}
	x.missing &^= setData
	n := len(x.sges)
	x.sges = append(x.sges, sge)
	x.cur.SGList = x.sges[n : n+1 : n+1]
}

// SetSGEList is SetSGE for several SGEs (ibv_wr_set_sge_list). The list may be reused afterwards.
func (x *QPEx) SetSGEList(list []SGE) {
	wr := x.set(setData)
	if wr != &x.none {
		from := len(x.sges)
		x.sges = append(x.sges, list...)
		wr.SGList = x.sges[from:len(x.sges):len(x.sges)]
	}
}

// SetInlineData sets the data of a SEND or RDMA WRITE, which is copied (ibv_wr_set_inline_data). data need not be
// registered and may be reused afterwards.
func (x *QPEx) SetInlineData(data []byte) {
	wr, from := x.set(setData), len(x.data)
	if x.fits(wr, len(data)) {
		x.data = append(x.data, data...)
		wr.Inline = x.data[from:len(x.data):len(x.data)]
	}
}

// SetInlineDataList is SetInlineData for several pieces (ibv_wr_set_inline_data_list).
func (x *QPEx) SetInlineDataList(list [][]byte) {
	wr, from, n := x.set(setData), len(x.data), 0
	for i := range list {
		n += len(list[i])
	}
	if x.fits(wr, n) {
		for i := range list {
			x.data = append(x.data, list[i]...)
		}
		wr.Inline = x.data[from:len(x.data):len(x.data)]
	}
}

// fits reports whether a request can have n bytes of inline data.
func (x *QPEx) fits(wr *SendWR, n int) bool {
	if wr == &x.none {
		return false
	}
	wr.Flags |= SendInline
	if limit := x.qp.init.Cap.MaxInlineData; uint64(n) > uint64(limit) {
		x.fail(EINVAL, "%v: %d bytes of inline data: must be 0 to %d (MaxInlineData)", wr.Opcode, n, limit)
		return false
	}
	return true
}

// SetUDAddr sets the destination of a request of a UD QP (ibv_wr_set_ud_addr).
func (x *QPEx) SetUDAddr(ah *AH, remoteQPN, remoteQKey uint32) {
	wr := x.set(setUDAddr)
	if wr != &x.none {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey, x.holds = ah, remoteQPN, remoteQKey, true
	}
}

// SetXRCSRQN sets the number of the peer's SRQ in a request of an XRC_SEND QP (ibv_wr_set_xrc_srqn).
func (x *QPEx) SetXRCSRQN(srqn uint32) {
	x.set(setXRCSRQN).RemoteSRQN = srqn
}

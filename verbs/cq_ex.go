package verbs

import "sync"

// CQInitAttrEx says what extended CQ to make (struct ibv_cq_init_attr_ex). Flags and ParentDomain count if CompMask names
// them; a CompMask of 0 stands for those that are not zero.
type CQInitAttrEx struct {
	CQE int // room for completions, 1..MaxCQE
	CQOptions
	WCFlags      CreateCQWCFlags // fields that completions have
	CompMask     CQInitAttrMask
	Flags        CreateCQFlags
	ParentDomain *PD // with a thread domain: no locking; may be nil
}

// CQEx is an extended completion queue, which tells more about completions, and field by field (struct ibv_cq_ex). Its CQ is the plain
// view of the same object (ibv_cq_ex_to_cq).
//
// StartPoll takes the oldest completion and begins a batch, NextPoll takes the next one, EndPoll ends the batch:
//
//	for err = cq.StartPoll(nil); err == nil; err = cq.NextPoll() {
//		use(cq.WRID, cq.Status, cq.ReadByteLen())
//		started = true
//	}
//	if started {
//		cq.EndPoll()
//	}
//
// Between StartPoll and EndPoll other goroutines that call StartPoll wait, unless the CQ is single-threaded; the device
// does not. WRID and Status are those of the current completion. So is what the Read methods return: 0 if WCFlags did not
// ask for the field, and undefined where a WC's is, as after a failure. The CQ may be used as any other as well, but
// not polled by Poll within a batch.
type CQEx struct {
	*CQ
	WRID   uint64
	Status WCStatus

	drv      CQExDriver
	fields   CreateCQWCFlags
	unlocked bool
	mu       sync.Mutex // from StartPoll to EndPoll, unless unlocked
	polling  bool
	wc       WCEx
}

// WCEx is a completion with what a WC does not have. Drivers fill it.
type WCEx struct {
	WC
	Timestamp uint64 // of the device's clock
	Wallclock uint64 // ns since 1970
	FlowTag   uint32
	CVLAN     uint16
	TM        TMInfo
}

// TMInfo is the tag of a message (struct ibv_wc_tm_info).
type TMInfo struct {
	Tag  uint64
	Priv uint32
}

// PollCQAttr is the argument of StartPoll (struct ibv_poll_cq_attr).
type PollCQAttr struct {
	CompMask uint32 // 0
}

// ErrNoCompletion says that a CQEx is empty. errors.Is finds ENOENT in it.
var ErrNoCompletion error = &Error{Op: "poll_cq", Errno: ENOENT, Detail: "there is no completion"}

// CreateCQEx makes an extended completion queue (ibv_create_cq_ex). CQ.Cap tells how many completions it has room for.
// EINVAL for a bad size, channel, vector or domain, or unknown flags; EOPNOTSUPP for fields and flags that the device
// lacks, ENOSYS if it has no extended CQs; ENOMEM without resources.
func (ctx *Context) CreateCQEx(init *CQInitAttrEx) (*CQEx, error) {
	const op = "create_cq_ex"
	if init == nil {
		return nil, newError(op, ctx.obj(), EINVAL, "there are no attributes")
	}
	a := *init
	if err := a.check(op, ctx); err != nil {
		return nil, err
	}
	creator, ok := ctx.drv.(CQExCreator)
	if !ok {
		return nil, newError(op, ctx.obj(), ENOSYS, "the device has no extended CQs")
	}
	x := &CQEx{fields: a.WCFlags, unlocked: a.Flags&CreateCQSingleThreaded != 0}
	if pd := a.ParentDomain; pd != nil {
		if !pd.life.use(kindCQ) {
			return nil, errClosed(op, pd.obj())
		}
		x.unlocked = x.unlocked || pd.td != nil
	}
	cq, err := ctx.createCQ(op, a.CQE, &a.CQOptions, func(up CQUpcalls) (CQDriver, error) {
		var err error
		x.drv, err = creator.CreateCQEx(&CQExDriverInit{
			CQE: a.CQE, CompVector: a.CompVector, WCFlags: a.WCFlags, Flags: a.Flags,
		}, up)
		return x.drv, err
	})
	if err != nil {
		if a.ParentDomain != nil {
			a.ParentDomain.life.drop(kindCQ)
		}
		return nil, err
	}
	cq.domain = a.ParentDomain
	x.CQ = cq
	return x, nil
}

// check looks at what a plain CQ does not have, and clears what does not count.
func (a *CQInitAttrEx) check(op string, ctx *Context) error {
	if a.CompMask != 0 && a.CompMask&CQInitFlags == 0 {
		a.Flags = 0
	}
	if a.CompMask != 0 && a.CompMask&CQInitPD == 0 {
		a.ParentDomain = nil
	}
	const flags = CreateCQSingleThreaded | CreateCQIgnoreOverrun
	switch pd := a.ParentDomain; {
	case a.CompMask&^cqInitAll != 0:
		return newError(op, ctx.obj(), EINVAL, "unknown fields %v; there are %v", a.CompMask&^cqInitAll, cqInitAll)
	case a.WCFlags&^CreateCQSupWCFlags != 0:
		return newError(op, ctx.obj(), EINVAL, "unknown fields %v; there are %v", a.WCFlags&^CreateCQSupWCFlags, CreateCQSupWCFlags)
	case a.Flags&^flags != 0:
		return newError(op, ctx.obj(), EINVAL, "unknown flags %v; there are %v", a.Flags&^flags, flags)
	case pd == nil && a.CompMask&CQInitPD != 0:
		return newError(op, ctx.obj(), EINVAL, "the parent domain is missing")
	case pd != nil && pd.ctx != ctx:
		return newError(op, ctx.obj(), EINVAL, "the parent domain belongs to another context")
	case pd != nil && (pd.base == pd || pd.from != nil):
		return newError(op, ctx.obj(), EINVAL, "the PD is not a parent domain")
	}
	return nil
}

// StartPoll begins a batch with the oldest completion (ibv_start_poll). attr may be nil. ErrNoCompletion if there is
// none: then, and after any other error, no batch has begun and EndPoll must not be called. It allocates nothing.
func (cq *CQEx) StartPoll(attr *PollCQAttr) error {
	if attr != nil && attr.CompMask != 0 {
		return newError("start_poll", cq.obj(), EINVAL, "unknown attributes %#x; there are none", attr.CompMask)
	}
	if !cq.unlocked {
		cq.mu.Lock()
	}
	err := cq.take("start_poll", false)
	if err == nil {
		cq.polling = true
	} else if !cq.unlocked {
		cq.mu.Unlock()
	}
	return err
}

// NextPoll goes on to the next completion of a batch (ibv_next_poll). ErrNoCompletion if there is none. After any
// error EndPoll must still be called. EINVAL outside of a batch.
func (cq *CQEx) NextPoll() error {
	if !cq.polling {
		return newError("next_poll", cq.obj(), EINVAL, "StartPoll must come first")
	}
	return cq.take("next_poll", true)
}

// EndPoll ends a batch (ibv_end_poll). Completions that the batch did not come to stay in the CQ.
func (cq *CQEx) EndPoll() {
	if !cq.polling {
		return
	}
	cq.polling = false
	if !cq.unlocked {
		cq.mu.Unlock()
	}
}

// take makes the oldest completion the current one.
func (cq *CQEx) take(op string, more bool) error {
	if cq.life.closed.Load() {
		return errClosed(op, cq.obj())
	}
	found, err := cq.drv.PollOne(&cq.wc, more)
	switch {
	case err != nil:
		return driverError(op, cq.obj(), err)
	case !found:
		return ErrNoCompletion
	}
	cq.WRID, cq.Status = cq.wc.WRID, cq.wc.Status
	return nil
}

// has tells whether the completions have a field.
func (cq *CQEx) has(f CreateCQWCFlags) bool { return cq.fields&f != 0 }

// Err is nil if the current completion is a success, and otherwise says why it failed, as WC.Err does.
func (cq *CQEx) Err() error { return cq.wc.Err() }

// ReadOpcode is what the request did (ibv_wc_read_opcode). No flag asks for it.
func (cq *CQEx) ReadOpcode() WCOpcode { return cq.wc.Opcode }

// ReadVendorErr is the device's own code of a failure (ibv_wc_read_vendor_err). No flag asks for it.
func (cq *CQEx) ReadVendorErr() uint32 { return cq.wc.VendorErr }

// ReadWCFlags says what else the completion holds (ibv_wc_read_wc_flags). No flag asks for it.
func (cq *CQEx) ReadWCFlags() WCFlags { return cq.wc.WCFlags }

// ReadPKeyIndex is the index of the P_Key that a datagram came with (ibv_wc_read_pkey_index). No flag asks for it.
func (cq *CQEx) ReadPKeyIndex() uint16 { return cq.wc.PKeyIndex }

// ReadByteLen is how many bytes were transferred (ibv_wc_read_byte_len); WCExWithByteLen asks for it.
func (cq *CQEx) ReadByteLen() uint32 { return ifHas(cq, WCExWithByteLen, cq.wc.ByteLen) }

// ReadImmData is the immediate data, as WC.ImmData (ibv_wc_read_imm_data); WCExWithImm asks for it.
func (cq *CQEx) ReadImmData() uint32 { return ifHas(cq, WCExWithImm, cq.wc.ImmData) }

// ReadInvalidatedRKey is the key that the peer invalidated (ibv_wc_read_invalidated_rkey); WCExWithImm asks for it.
func (cq *CQEx) ReadInvalidatedRKey() uint32 {
	return ifHas(cq, WCExWithImm, cq.wc.InvalidatedRKey)
}

// ReadQPNum is the number of the QP (ibv_wc_read_qp_num); WCExWithQPNum asks for it.
func (cq *CQEx) ReadQPNum() uint32 { return ifHas(cq, WCExWithQPNum, cq.wc.QPNum) }

// ReadSrcQP is the number of the QP that sent a datagram (ibv_wc_read_src_qp); WCExWithSrcQP asks for it.
func (cq *CQEx) ReadSrcQP() uint32 { return ifHas(cq, WCExWithSrcQP, cq.wc.SrcQP) }

// ReadSLID is the source's LID, 0 on RoCE (ibv_wc_read_slid); WCExWithSLID asks for it. The C function gives 32 bits.
func (cq *CQEx) ReadSLID() uint32 { return ifHas(cq, WCExWithSLID, uint32(cq.wc.SLID)) }

// ReadSL is the service level (ibv_wc_read_sl); WCExWithSL asks for it.
func (cq *CQEx) ReadSL() uint8 { return ifHas(cq, WCExWithSL, cq.wc.SL) }

// ReadDLIDPathBits are the path bits of the destination's LID, 0 on RoCE (ibv_wc_read_dlid_path_bits);
// WCExWithDLIDPathBits asks for them.
func (cq *CQEx) ReadDLIDPathBits() uint8 {
	return ifHas(cq, WCExWithDLIDPathBits, cq.wc.DLIDPathBits)
}

// ReadCompletionTS is when the completion came into the CQ, in ticks of the device's clock, of which
// DeviceAttrEx.HCACoreClock thousands make a second (ibv_wc_read_completion_ts); WCExWithCompletionTimestamp asks for
// it. The software device counts nanoseconds from the time when it was opened.
func (cq *CQEx) ReadCompletionTS() uint64 {
	return ifHas(cq, WCExWithCompletionTimestamp, cq.wc.Timestamp)
}

// ReadCompletionWallclockNS is when the completion came into the CQ, in nanoseconds since 1970
// (ibv_wc_read_completion_wallclock_ns); WCExWithCompletionTimestampWallclock asks for it.
func (cq *CQEx) ReadCompletionWallclockNS() uint64 {
	return ifHas(cq, WCExWithCompletionTimestampWallclock, cq.wc.Wallclock)
}

// ReadCVLAN is the VLAN tag of a received frame, in host order (ibv_wc_read_cvlan); WCExWithCVLAN asks for it.
func (cq *CQEx) ReadCVLAN() uint16 { return ifHas(cq, WCExWithCVLAN, cq.wc.CVLAN) }

// ReadFlowTag is the tag of the flow rule that a frame met (ibv_wc_read_flow_tag); WCExWithFlowTag asks for it.
func (cq *CQEx) ReadFlowTag() uint32 { return ifHas(cq, WCExWithFlowTag, cq.wc.FlowTag) }

// ReadTMInfo is the tag of a message (ibv_wc_read_tm_info); WCExWithTMInfo asks for it.
func (cq *CQEx) ReadTMInfo() TMInfo { return ifHas(cq, WCExWithTMInfo, cq.wc.TM) }

// ifHas is v if the completions of cq have the field f.
func ifHas[T any](cq *CQEx, f CreateCQWCFlags, v T) T {
	if !cq.has(f) {
		var none T
		return none
	}
	return v
}

// RTValues are values of a device that change all the time (struct ibv_values_ex).
type RTValues struct {
	RawClock uint64 // ticks of the clock that CQEx.ReadCompletionTS is of; DeviceAttrEx.HCACoreClock says how long they are
}

// QueryRTValues reads the device's clock (ibv_query_rt_values_ex), to compare it with the raw timestamps of completions. EOPNOTSUPP if it
// cannot be read.
func (ctx *Context) QueryRTValues() (RTValues, error) {
	const op = "query_rt_values_ex"
	if err := ctx.enter(op); err != nil {
		return RTValues{}, err
	}
	defer ctx.leave()
	drv, ok := ctx.drv.(RawClock)
	if !ok {
		return RTValues{}, newError(op, ctx.obj(), EOPNOTSUPP, "the device's clock cannot be read")
	}
	now, err := drv.RawClock()
	return RTValues{RawClock: now}, driverError(op, ctx.obj(), err)
}

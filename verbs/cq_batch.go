package verbs

import "unsafe"

// ErrNoCompletion is returned by StartPoll and NextPoll for an empty CQ. errors.Is finds ENOENT in it.
var ErrNoCompletion error = &Error{Op: "poll_cq", Errno: ENOENT, Detail: "there is no completion"}

// StartPoll begins a batch and copies the oldest completion to wc (ibv_start_poll, struct ibv_poll_cq_attr):
//
//	var wc verbs.WC
//	for err = cq.StartPoll(&wc); err == nil; err = cq.NextPoll(&wc) {
//		use(&wc)
//		started = true
//	}
//	if started {
//		cq.EndPoll()
//	}
//
// Between StartPoll and EndPoll other goroutines that call StartPoll wait, unless the CQ is single-threaded; the device
// does not wait. Poll must not be called within a batch. Fields of WC that are not in CQOptions.WCFlags are 0. The C
// functions ibv_wc_read_* are fields of WC.
//
// Errors: ErrNoCompletion if the CQ is empty. After any error no batch has begun and EndPoll must not be called.
// EOPNOTSUPP if the device has no batches. It allocates nothing.
func (cq *CQ) StartPoll(wc *WC) error { return cq.startPoll(wc) }

// startPoll is StartPoll. Its annotation is not for the reader of StartPoll's documentation.
//
// +checklocksignore: holds batch on success, until EndPoll
func (cq *CQ) startPoll(wc *WC) error {
	if !cq.unlocked {
		cq.batch.Lock()
	}
	err := cq.take("start_poll", wc, false)
	if err == nil {
		cq.polling = true
	} else if !cq.unlocked {
		cq.batch.Unlock()
	}
	return err
}

// NextPoll copies the next completion of a batch to wc (ibv_next_poll). ErrNoCompletion if the CQ is empty, EINVAL
// outside of a batch. After any error EndPoll must still be called.
func (cq *CQ) NextPoll(wc *WC) error {
	if !cq.polling {
		return newError("next_poll", cq.obj(), EINVAL, "no batch is open; call StartPoll first")
	}
	return cq.take("next_poll", wc, true)
}

// EndPoll ends a batch (ibv_end_poll). Completions that the batch did not take stay in the CQ.
func (cq *CQ) EndPoll() { cq.endPoll() }

// endPoll is EndPoll.
//
// +checklocksignore: unlocks for startPoll
func (cq *CQ) endPoll() {
	if !cq.polling {
		return
	}
	cq.polling = false
	if !cq.unlocked {
		cq.batch.Unlock()
	}
}

// take copies the oldest completion to wc.
func (cq *CQ) take(op string, wc *WC, more bool) error {
	if cq.lifetime.closed.Load() {
		return errClosed(op, cq.obj())
	}
	found, err := cq.drv.PollOne(&noescape(unsafe.Slice(wc, 1))[0], more)
	switch {
	case err != nil:
		return driverError(op, cq.obj(), err)
	case !found:
		return ErrNoCompletion
	}
	if cq.opts.WCFlags != CreateCQSupWCFlags {
		wc.keep(cq.opts.WCFlags)
	}
	return nil
}

// keep clears the fields that are not in fields.
func (wc *WC) keep(fields CreateCQWCFlags) {
	if fields&WCExWithByteLen == 0 {
		wc.ByteLen = 0
	}
	if fields&WCExWithImm == 0 {
		wc.ImmData, wc.InvalidatedRKey = 0, 0
	}
	if fields&WCExWithQPNum == 0 {
		wc.QPNum = 0
	}
	if fields&WCExWithSrcQP == 0 {
		wc.SrcQP = 0
	}
	if fields&WCExWithSLID == 0 {
		wc.SLID = 0
	}
	if fields&WCExWithSL == 0 {
		wc.SL = 0
	}
	if fields&WCExWithDLIDPathBits == 0 {
		wc.DLIDPathBits = 0
	}
	wc.keepExtended(fields)
}

// keepExtended is keep for the fields that the C structure ibv_wc lacks.
func (wc *WC) keepExtended(fields CreateCQWCFlags) {
	if fields&WCExWithCompletionTimestamp == 0 {
		wc.Timestamp = 0
	}
	if fields&WCExWithCompletionTimestampWallclock == 0 {
		wc.Wallclock = 0
	}
	if fields&WCExWithCVLAN == 0 {
		wc.CVLAN = 0
	}
	if fields&WCExWithFlowTag == 0 {
		wc.FlowTag = 0
	}
	if fields&WCExWithTMInfo == 0 {
		wc.TM = TMInfo{}
	}
}

package transport

// The local operations LOCAL_INV and BIND_MW use no packet and no PSN. A local operation executes when it is at the
// head of the send queue: all earlier work requests are complete, and no later one starts before it completes. A
// retry therefore never executes it twice, and a SEND after a bind may carry the new key. The cost is up to one round
// trip of waiting if earlier requests are unacknowledged.

func (w *SendWQE) isLocal() bool { return w.Op == OpLocalInv || w.Op == OpBindMW }

// local executes w, the work request at cur and at head. It returns false if w failed or must be tried again later.
func (r *requester) local(now int64, w *SendWQE) bool {
	if !w.begun {
		if st, why := r.execute(w); st != Success {
			r.reject(now, w, st, why)
			return false
		}
		w.begun = true
		r.begun++
	}
	// Another shard may be accessing memory through the previous binding of a type 1 window. That takes no longer
	// than one copy.
	if w.Op == OpBindMW && !w.Bind.Window.Drained() {
		return false
	}
	r.cur++
	r.finish(w, Success, nil)
	r.runDeferred()
	return true
}

func (r *requester) execute(w *SendWQE) (Status, string) {
	qp := r.qp
	switch {
	case !qp.Type.does(w.Op):
		return LocQPOpErr, "this QP type does not support the operation"
	case w.Op == OpBindMW:
		if err := qp.Regions.Bind(&w.Bind, qp.PD, qp.id); err != nil {
			return MWBindErr, "the memory window cannot be bound: " + err.Error()
		}
	default:
		if err := qp.Regions.Invalidate(w.Imm, qp.PD, qp.id); err != nil {
			return LocQPOpErr, "the key cannot be invalidated: " + err.Error()
		}
	}
	return Success, ""
}

package transport

// Local operations, LOCAL_INV and BIND_MW, use no packet and no PSN. One is executed when it has reached the head of
// the send queue, that is when everything before it is complete, and is complete itself before anything behind it
// begins. So a retry never comes past one again, and a SEND behind a bind may carry the new key. What it costs
// is a pause of a round trip when requests that are not acknowledged stand before it.

func (w *SendWQE) isLocal() bool { return w.Op == OpLocalInv || w.Op == OpBindMW }

// local executes w, the work request at cur, which is the one at head. It returns false if w failed, or must be looked at again.
func (r *requester) local(now int64, w *SendWQE) bool {
	if !w.begun {
		if st, why := r.execute(w); st != Success {
			r.reject(now, w, st, why)
			return false
		}
		w.begun = true
		r.begun++
	}
	// Another shard may be in the middle of using what a window of type 1 was bound to before. It takes no longer than a copy.
	if w.Op == OpBindMW && !w.Bind.Window.Settled() {
		return false
	}
	r.cur++
	r.finish(w, Success, nil)
	r.settle()
	return true
}

func (r *requester) execute(w *SendWQE) (Status, string) {
	qp := r.qp
	switch {
	case !qp.Type.does(w.Op):
		return LocQPOpErr, "this type of QP does not do the operation"
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

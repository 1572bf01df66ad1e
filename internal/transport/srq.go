package transport

// Changes of a shared receive queue (ibv_modify_srq).

// Resize changes the size to at least wrs receives with sges SGEs each and keeps posted receives. If more receives
// are outstanding it returns ErrQueueFull and changes nothing.
func (q *RecvQueue) Resize(wrs, sges int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := uint32(CeilPow2(wrs))
	if q.fill-q.polled.Load() > n {
		return ErrQueueFull
	}
	old := RecvQueue{slots: q.slots, base: q.base, mask: q.mask, maxSGE: q.maxSGE}
	q.mask = n - 1
	q.maxSGE = max(q.maxSGE, uint16(sges)) // posted receives may have the old number
	q.slots = make([]SGE, int(n)*(1+int(q.maxSGE)))
	for i := q.taken; i != q.fill; i++ {
		head, sges := old.at(i) // +checklocksforce: old is local
		q.store(i, head.Addr, sges[:head.Length])
	}
	return nil
}

// SetLimit arms the limit event, which is raised once when fewer than n receives are posted, possibly at once
// (V-SRQ-09, V-SRQ-11). 0 disarms it.
func (q *RecvQueue) SetLimit(n uint32) {
	q.mu.Lock()
	hit := q.fill-q.taken < n
	if q.limit = n; hit {
		q.limit = 0
	}
	q.mu.Unlock()
	if hit && q.OnLimit != nil {
		q.OnLimit()
	}
}

// Limit returns the armed limit, 0 if there is none.
func (q *RecvQueue) Limit() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit
}

package fault

// Queue is a priority queue by time. Values with the same time leave in the order of their Push.
type Queue[T any] struct {
	heap []item[T]
	seq  uint64
}

type item[T any] struct {
	at    int64
	seq   uint64
	value T
}

func (a *item[T]) before(b *item[T]) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// Len is the number of values.
func (q *Queue[T]) Len() int { return len(q.heap) }

// Next returns the earliest time of a value; ok is false if the queue is empty.
func (q *Queue[T]) Next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// Push adds a value with time at.
func (q *Queue[T]) Push(at int64, v T) {
	q.seq++
	q.heap = append(q.heap, item[T]{at: at, seq: q.seq, value: v})
	h := q.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// Pop removes the earliest value if its time is not after now.
func (q *Queue[T]) Pop(now int64) (v T, ok bool) {
	if len(q.heap) == 0 || q.heap[0].at > now {
		return v, false
	}
	h := q.heap
	v = h[0].value
	last := len(h) - 1
	h[0], h[last] = h[last], item[T]{}
	h = h[:last]
	q.heap = h
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h[down].before(&h[least]) {
				least = down
			}
		}
		if least == i {
			return v, true
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

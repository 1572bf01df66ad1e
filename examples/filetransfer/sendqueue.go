package main

import (
	"context"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A sendQueue posts requests, at most depth at a time. A request occupies its place in the queue, and the device may
// read its memory, until its completion was polled. So each request is signaled, and a full queue waits for the oldest.
type sendQueue struct {
	id                *rdmacm.ID
	depth             uint64
	posted, completed uint64
}

func (q *sendQueue) post(ctx context.Context, wr verbs.SendWR) error {
	if err := q.wait(ctx, q.depth-1); err != nil {
		return err
	}
	wr.Flags |= verbs.SendSignaled
	if err := q.id.QP().PostSend(wr); err != nil {
		return err
	}
	q.posted++
	return nil
}

// wait waits until at most this number of requests are outstanding.
func (q *sendQueue) wait(ctx context.Context, outstanding uint64) error {
	for q.posted-q.completed > outstanding {
		wc, err := q.id.GetSendComp(ctx)
		if err != nil {
			return err
		}
		if err := wc.Err(); err != nil {
			return err
		}
		q.completed++ // completions come in the order of posting
	}
	return nil
}

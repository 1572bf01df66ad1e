package main

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// depth is the number of requests of a client that may wait in the server.
const depth = 16

// server serves a table to any number of clients.
type server struct {
	*table
	l    *rdmacm.Listener
	done sync.WaitGroup
}

// serve accepts clients until ctx is done, then ends their connections.
func (s *server) serve(ctx context.Context) error {
	defer s.done.Wait()
	for {
		id, err := s.l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		s.done.Go(func() {
			_ = s.client(ctx, id) // ends with the client, which may end at any time
			_ = id.Close()
		})
	}
}

// client serves one client. The client READs the table without the server's help; its writes are messages.
func (s *server) client(ctx context.Context, id *rdmacm.ID) (err error) {
	mr, err := id.RegRead(s.mem)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	buf := make([]byte, depth*maxRequest)
	requests, err := id.RegMsgs(buf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, requests.Close()) }()
	defer func() { err = errors.Join(err, id.Disconnect(ctx)) }() // first: it ends the use of the memory
	slot := func(i uint64) []byte { return buf[i*maxRequest : (i+1)*maxRequest] }
	for i := range uint64(depth) {
		if err := id.PostRecv(i, slot(i), requests); err != nil {
			return err
		}
	}
	if err := send(ctx, id, s.hello(mr)); err != nil {
		return err
	}
	for {
		wc, err := id.GetRecvComp(ctx)
		if err == nil {
			err = wc.Err()
		}
		if err != nil {
			return err
		}
		answer, ok := s.do(slot(wc.WRID)[:wc.ByteLen])
		if !ok {
			return errors.New("malformed request")
		}
		if err := id.PostRecv(wc.WRID, slot(wc.WRID), requests); err != nil {
			return err
		}
		if err := send(ctx, id, answer[:]); err != nil {
			return err
		}
	}
}

// hello tells a client where the table is.
func (s *server) hello(mr *verbs.MR) []byte {
	b := binary.LittleEndian.AppendUint64(nil, mr.Addr())
	b = binary.LittleEndian.AppendUint32(b, mr.RKey())
	return binary.LittleEndian.AppendUint32(b, uint32(s.n))
}

// send sends a short message and waits until it has arrived.
func send(ctx context.Context, id *rdmacm.ID, b []byte) error {
	if err := id.PostSend(0, b, nil, verbs.SendInline|verbs.SendSignaled); err != nil {
		return err
	}
	wc, err := id.GetSendComp(ctx)
	if err != nil {
		return err
	}
	return wc.Err()
}

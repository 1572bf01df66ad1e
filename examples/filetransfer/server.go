package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	slots    = 16
	slotSize = 64 << 10
	// A device learns that the peer is gone only if it sends something, and a server that waits for pieces sends nothing.
	// After this time without a piece it probes the client.
	silence = 5 * time.Second
)

// A server stores the files of its clients in a folder.
type server struct {
	host  *rdmacm.Host // nil for the default one
	dir   string
	log   func(text string)    // for stored files and failures; called by one goroutine at a time
	ready func(address string) // called when the server listens; may be nil
	mu    sync.Mutex           // held while log runs
}

// run serves clients, each with a separate ring, until the context ends. It returns after the last client's resources
// are freed.
func (s *server) run(ctx context.Context, address string) error {
	l, err := rdmacm.Listen(ctx, address, &rdmacm.Options{
		Host: s.host,
		QP:   verbs.QPCap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: answerSize},
	})
	if err != nil {
		return err
	}
	defer l.Close()
	if s.ready != nil {
		s.ready(l.Addr().String())
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		// Request, not Accept: the client may write as soon as it is accepted, so the receives must be posted before that.
		id, err := l.Request(ctx)
		if err != nil {
			return err
		}
		clients.Go(func() {
			client := id.Route().DstAddr
			if err := s.serve(ctx, id); err != nil {
				s.logf("%v: %v", client, err)
			}
		})
	}
}

func (s *server) logf(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(fmt.Sprintf(format, a...))
}

// serve handles one connection from its request to its end.
func (s *server) serve(ctx context.Context, id *rdmacm.ID) error {
	r := &receiver{server: s, id: id, sends: sendQueue{id: id, depth: slots}}
	defer r.close()
	if err := r.accept(ctx); err != nil {
		return err
	}
	err := r.receive(ctx)
	if r.file != nil {
		r.file.discard()
		err = fmt.Errorf("%q: ended after %d of %d bytes: %w", r.file.name, r.file.written, r.file.size, err)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the server was stopped: %w", err)
	}
	// This confirms the peer's Disconnect, or disconnects. ctx may have ended, but the client must still be informed.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = id.Disconnect(last)
	return err
}

// A receiver is the server's end of a connection.
type receiver struct {
	*server
	id    *rdmacm.ID
	ring  ring
	mr    *verbs.MR // the slots
	sends sendQueue
	next  uint64    // number of the next piece
	owed  uint32    // free slots not yet returned to the client as credits
	file  *incoming // nil between files
}

func (r *receiver) accept(ctx context.Context) (err error) {
	if r.mr, err = r.id.RegWrite(make([]byte, slots*slotSize)); err != nil {
		return err
	}
	for range slots {
		if err := r.expect(); err != nil {
			return err
		}
	}
	r.ring = ring{Slots: slots, SlotSize: slotSize, RKey: r.mr.RKey(), Addr: r.mr.Addr()}
	// The retry parameters are the client's.
	param := r.id.Event().Conn
	param.PrivateData = r.ring.encode()
	return r.id.Accept(ctx, &param)
}

// expect posts a receive for one WRITE with immediate. It needs no buffer: the WRITE names its destination.
func (r *receiver) expect() error { return r.id.PostRecvV(0) }

// receive handles pieces until the client disconnects.
func (r *receiver) receive(ctx context.Context) error {
	for {
		wc, err := r.wait(ctx)
		if errors.Is(err, io.EOF) && r.file == nil {
			return nil
		}
		if err != nil {
			return err
		}
		at := r.ring.slot(r.next)
		r.next++
		verdict, err := r.take(wc.ImmData, r.mr.Bytes()[at:][:wc.ByteLen])
		if err != nil {
			return r.refuse(ctx, err)
		}
		// The receive is posted before the credit is returned: a WRITE without a receive causes an RNR NAK, whose delay is
		// longer than many WRITEs take.
		if err := r.expect(); err != nil {
			return err
		}
		r.owed++
		// Returning each credit at once would double the number of messages; returning them when all are used up would stop
		// the client until the answer arrives.
		if verdict != undecided || r.owed >= slots/2 {
			if err := r.answer(ctx, answer{credits: r.owed, verdict: verdict}); err != nil {
				return err
			}
			r.owed = 0
		}
	}
}

func (r *receiver) answer(ctx context.Context, a answer) error {
	return r.sends.post(ctx, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: a.encode()})
}

// refuse sends the client the reason and waits until the client disconnects. If the server disconnected, the disconnect
// request could arrive before the reason.
func (r *receiver) refuse(ctx context.Context, reason error) error {
	if err := r.answer(ctx, answer{verdict: refused, reason: reason.Error()}); err != nil {
		return errors.Join(reason, err)
	}
	for {
		if _, err := r.wait(ctx); err != nil { // further pieces are ignored
			return reason
		}
	}
}

// wait waits for the next piece.
func (r *receiver) wait(ctx context.Context) (verbs.WC, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, silence)
		wc, err := r.id.GetRecvComp(limited)
		cancel()
		switch {
		case err == nil && wc.Err() != nil:
			return wc, wc.Err()
		case err == nil && wc.Opcode != verbs.WCRecvRDMAWithImm:
			return wc, fmt.Errorf("the client sent a %v: must be a WRITE with immediate", wc.Opcode)
		case err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return wc, err
		}
		if err := r.probe(ctx); err != nil {
			return wc, fmt.Errorf("the client does not answer: %w", err)
		}
	}
}

// probe checks that the peer is alive, by a WRITE of 0 bytes. The peer's device acknowledges it without a receive and
// without its program.
func (r *receiver) probe(ctx context.Context) error {
	if err := r.sends.post(ctx, verbs.SendWR{Opcode: verbs.WRRDMAWrite}); err != nil {
		return err
	}
	return r.sends.wait(ctx, 0)
}

// take processes a piece. Its slot is free when take returns.
func (r *receiver) take(kind uint32, data []byte) (verdict byte, err error) {
	switch {
	case kind == pieceBegin && r.file == nil:
		r.file, err = begin(r.dir, data)
		return undecided, err
	case kind == pieceData && r.file != nil:
		return undecided, r.file.write(data)
	case kind == pieceEnd && r.file != nil:
		f := r.file
		r.file = nil
		if err := f.finish(data); err != nil {
			return refused, err
		}
		r.logf("%v: %q, %d bytes", r.id.Route().DstAddr, f.name, f.size)
		return stored, nil
	}
	return refused, fmt.Errorf("unexpected piece of kind %d", kind)
}

func (r *receiver) close() {
	_ = r.id.DestroyQP()
	if r.mr != nil {
		_ = r.mr.Close()
	}
	_ = r.id.Close()
}

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
	// Who waits for messages sends nothing, and whose device sends nothing never learns that the peer is dead. After so much silence the
	// server asks.
	silence = 5 * time.Second
)

// A server stores the files of its clients in a folder.
type server struct {
	host  *rdmacm.Host // nil for the default one
	dir   string
	log   func(text string) // of what happens; called by one goroutine at a time
	ready func(address string)
	mu    sync.Mutex // of log
}

// run serves clients, each with a ring of its own, until the context ends. When it returns nothing is left of them.
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
		// Not l.Accept: a client may write as soon as it is accepted, so the ring and the receives come before.
		id, err := l.Request(ctx)
		if err != nil {
			return err
		}
		clients.Go(func() {
			client := id.Route().DstAddr
			if err := s.serve(ctx, id); err != nil {
				s.say("%v: %v", client, err)
			}
		})
	}
}

func (s *server) say(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(fmt.Sprintf(format, a...))
}

// serve is one connection from its request to its end.
func (s *server) serve(ctx context.Context, id *rdmacm.ID) error {
	r := &receiver{server: s, id: id, sends: sendQueue{id: id, depth: slots}}
	defer r.close()
	if err := r.accept(ctx); err != nil {
		return err
	}
	err := r.receive(ctx)
	if r.file != nil {
		r.file.discard()
		err = fmt.Errorf("%s ends after %d of its %d bytes: %w", r.file.name, r.file.written, r.file.size, err)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the server is stopped: %w", err)
	}
	// It answers the peer's Disconnect, or begins the end. The context may have ended by now, and the peer must learn of that too.
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
	next  uint64 // number of the next piece
	owed  uint32 // slots that are free again and that the client does not know of
	file  *incoming
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
	// Retries of both ends' QPs are as the client has asked for.
	param := r.id.Event().Conn
	param.PrivateData = r.ring.encode()
	return r.id.Accept(ctx, &param)
}

// expect posts a receive for one WRITE with immediate. It has no memory: the WRITE knows where its data goes.
func (r *receiver) expect() error { return r.id.PostRecvV(0) }

// receive takes pieces until the client disconnects.
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
		// The receive goes before the credit: a WRITE that finds none would be put off (RNR), which costs more time than many WRITEs.
		if err := r.expect(); err != nil {
			return err
		}
		r.owed++
		// A credit for each piece would be as many messages as pieces; one when all are used up would let the client stand still.
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

// refuse tells the client why it should end. It ends the connection, not we: a disconnection from here could overtake the reason.
func (r *receiver) refuse(ctx context.Context, reason error) error {
	if err := r.answer(ctx, answer{verdict: refused, reason: reason.Error()}); err != nil {
		return errors.Join(reason, err)
	}
	for {
		if _, err := r.wait(ctx); err != nil { // what it writes until it has heard us does not matter
			return reason
		}
	}
}

// wait waits for the next piece.
func (r *receiver) wait(ctx context.Context) (verbs.WC, error) {
	for {
		brief, cancel := context.WithTimeout(ctx, silence)
		wc, err := r.id.GetRecvComp(brief)
		cancel()
		switch {
		case err == nil && wc.Err() != nil:
			return wc, wc.Err()
		case err == nil && wc.Opcode != verbs.WCRecvRDMAWithImm:
			return wc, fmt.Errorf("the client has sent a %v; only WRITEs with immediate are expected", wc.Opcode)
		case err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return wc, err
		}
		if err := r.probe(ctx); err != nil {
			return wc, fmt.Errorf("the client does not answer any more: %w", err)
		}
	}
}

// probe finds out whether the peer is alive: a WRITE of nothing to nowhere. Its device acknowledges that, its program need not have
// a receive for it or even notice.
func (r *receiver) probe(ctx context.Context) error {
	if err := r.sends.post(ctx, verbs.SendWR{Opcode: verbs.WRRDMAWrite}); err != nil {
		return err
	}
	return r.sends.wait(ctx, 0)
}

// take does what a piece says. The slot is free again when it returns.
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
		r.say("%v: %s, %d bytes", r.id.Route().DstAddr, f.name, f.size)
		return stored, nil
	}
	return refused, fmt.Errorf("a piece of kind %d came out of turn", kind)
}

func (r *receiver) close() {
	_ = r.id.DestroyQP()
	if r.mr != nil {
		_ = r.mr.Close()
	}
	_ = r.id.Close()
}

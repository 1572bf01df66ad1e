package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A client is the end that sends.
type client struct {
	id      *rdmacm.ID
	ring    ring
	sends   sendQueue
	credits uint32 // slots of the ring that may be written
	next    uint64 // number of the next piece

	buf     []byte // a slot for each one of the ring, and behind them a place for each answer
	mr      *verbs.MR
	answers int // offset in buf
}

// connect makes a connection with everything that sending needs.
func connect(ctx context.Context, host *rdmacm.Host, address string) (*client, error) {
	// Left alone, the connection manager would ask a host that is silent for more than a minute.
	brief, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id, err := rdmacm.Dial(brief, address, &rdmacm.Options{
		Host: host,
		QP:   verbs.QPCap{MaxSendWR: maxSlots, MaxRecvWR: maxSlots, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	c := &client{id: id}
	if err := c.prepare(); err != nil {
		c.close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return c, nil
}

func (c *client) prepare() (err error) {
	if c.ring, err = decodeRing(c.id.Event().Conn.PrivateData); err != nil {
		return err
	}
	slots := int(c.ring.Slots)
	c.credits, c.sends = c.ring.Slots, sendQueue{id: c.id, depth: uint64(slots)}
	c.answers = slots * int(c.ring.SlotSize)
	// Out of this memory a peer on the same host reads large messages where they lie.
	if c.buf, err = verbs.AllocBuffer(c.answers + slots*answerSize); err != nil {
		return err
	}
	if c.mr, err = c.id.RegMsgs(c.buf); err != nil {
		return err
	}
	// Each answer gives back a credit at least, so no more than there are slots are ever under way: none finds the queue empty. After
	// connecting is early enough for these receives, because the server does not speak first.
	for i := range slots {
		if err := c.receive(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) receive(i uint64) error { return c.id.PostRecv(i, c.answer(i), c.mr) }

func (c *client) answer(i uint64) []byte { return c.buf[c.answers+int(i)*answerSize:][:answerSize] }

// sendFile sends a file and returns its size when the server has stored it.
func (c *client) sendFile(ctx context.Context, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("this is not a regular file, whose size is known before")
	}
	return info.Size(), c.send(ctx, filepath.Base(path), info.Size(), f)
}

func (c *client) send(ctx context.Context, name string, size int64, from io.Reader) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the name has %d bytes; possible are 1 to %d", len(name), maxName)
	}
	begin := func(slot []byte) (int, error) { return encodeBegin(slot, name, size), nil }
	if err := c.put(ctx, pieceBegin, begin); err != nil {
		return err
	}
	sum := sha256.New()
	for left := size; left > 0; {
		err := c.put(ctx, pieceData, func(slot []byte) (int, error) {
			// The file is read to where the device sends from: no copy in between.
			n, err := io.ReadFull(from, slot[:min(left, int64(len(slot)))])
			left -= int64(n)
			sum.Write(slot[:n])
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = fmt.Errorf("the file has become shorter: %d of its %d bytes are missing", left, size)
			}
			return n, err
		})
		if err != nil {
			return err
		}
	}
	end := func(slot []byte) (int, error) { return copy(slot, sum.Sum(nil)), nil }
	if err := c.put(ctx, pieceEnd, end); err != nil {
		return err
	}
	for {
		if verdict, err := c.listen(ctx); verdict == stored || err != nil {
			return err
		}
	}
}

// put fills the next slot and writes it to the same slot of the server.
func (c *client) put(ctx context.Context, kind uint32, fill func(slot []byte) (int, error)) error {
	// Two permissions are needed, and neither implies the other. The credit says that the server's slot is free. The completion of the
	// WRITE that was last in this slot says that ours is: until then its packets may have to be sent again.
	for c.credits == 0 {
		if _, err := c.listen(ctx); err != nil {
			return err
		}
	}
	if err := c.sends.wait(ctx, c.sends.depth-1); err != nil {
		return err
	}
	at := c.ring.slot(c.next)
	n, err := fill(c.buf[at:][:c.ring.SlotSize])
	if err != nil {
		return err
	}
	err = c.sends.post(ctx, verbs.SendWR{
		Opcode: verbs.WRRDMAWriteWithImm, ImmData: kind, SGList: []verbs.SGE{c.mr.SGE(at, n)},
		RemoteAddr: c.ring.Addr + uint64(at), RKey: c.ring.RKey,
	})
	if err != nil {
		return err
	}
	c.next++
	c.credits--
	return nil
}

// listen waits for one answer of the server.
func (c *client) listen(ctx context.Context) (verdict byte, err error) {
	wc, err := c.id.GetRecvComp(ctx)
	if errors.Is(err, io.EOF) {
		return undecided, errors.New("the server has ended the connection before it had stored the file")
	}
	if err == nil {
		err = wc.Err() // if the server is gone: flushed, with the failure of the WRITE that has found it out as its reason
	}
	if err != nil {
		return undecided, err
	}
	a, err := decodeAnswer(c.answer(wc.WRID)[:wc.ByteLen])
	if err != nil {
		return undecided, err
	}
	if c.credits += a.credits; c.credits > c.ring.Slots {
		return undecided, fmt.Errorf("the server gives credit for %d slots, and has %d", c.credits, c.ring.Slots)
	}
	if a.verdict == refused {
		return refused, fmt.Errorf("the server refuses the file: %s", a.reason)
	}
	return a.verdict, c.receive(wc.WRID)
}

// disconnect ends the connection: it waits until the server agrees.
func (c *client) disconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.id.Disconnect(ctx)
}

// close destroys everything, memory last: it must outlive the region, and the region the requests that use it. It also tells the
// server, if disconnect has not.
func (c *client) close() {
	_ = c.id.DestroyQP()
	if c.mr != nil {
		_ = c.mr.Close()
	}
	_ = c.id.Close()
	if c.buf != nil {
		_ = verbs.FreeBuffer(c.buf)
	}
}

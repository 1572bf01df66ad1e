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

// A client sends files to a server.
type client struct {
	id      *rdmacm.ID
	ring    ring
	sends   sendQueue
	credits uint32 // number of the server's slots that may be written
	next    uint64 // number of the next piece

	buf     []byte // as many slots as the ring has, then as many buffers for answers
	mr      *verbs.MR
	answers int // offset of the first answer's buffer in buf
}

// connect connects to a server and prepares to send.
func connect(ctx context.Context, host *rdmacm.Host, address string) (*client, error) {
	// Without a limit, the connection manager retries for more than a minute if the host does not answer.
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id, err := rdmacm.Dial(limited, address, &rdmacm.Options{
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
	// A peer on the same host can read large messages directly out of memory of AllocBuffer.
	if c.buf, err = verbs.AllocBuffer(c.answers + slots*answerSize); err != nil {
		return err
	}
	if c.mr, err = c.id.RegMsgs(c.buf); err != nil {
		return err
	}
	// Each answer returns at least one credit, so there are never more answers in flight than slots, and each finds a
	// receive. The receives can be posted after connecting, because the server answers only to pieces.
	for i := range slots {
		if err := c.receive(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) receive(i uint64) error { return c.id.PostRecv(i, c.answer(i), c.mr) }

func (c *client) answer(i uint64) []byte { return c.buf[c.answers+int(i)*answerSize:][:answerSize] }

// sendFile sends a file, waits until the server has stored it, and returns its size.
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
		return 0, errors.New("not a regular file")
	}
	return info.Size(), c.send(ctx, filepath.Base(path), info.Size(), f)
}

func (c *client) send(ctx context.Context, name string, size int64, from io.Reader) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the name has %d bytes: must be 1 to %d", len(name), maxName)
	}
	begin := func(slot []byte) (int, error) { return encodeBegin(slot, name, size), nil }
	if err := c.put(ctx, pieceBegin, begin); err != nil {
		return err
	}
	sum := sha256.New()
	for left := size; left > 0; {
		err := c.put(ctx, pieceData, func(slot []byte) (int, error) {
			// ReadFull reads directly into registered memory, so the data is not copied.
			n, err := io.ReadFull(from, slot[:min(left, int64(len(slot)))])
			left -= int64(n)
			sum.Write(slot[:n])
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = fmt.Errorf("the file became shorter: %d of its %d bytes are missing", left, size)
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
		if verdict, err := c.await(ctx); verdict == stored || err != nil {
			return err
		}
	}
}

// put fills the next slot and writes it to the same slot of the server.
func (c *client) put(ctx context.Context, kind uint32, fill func(slot []byte) (int, error)) error {
	// Two conditions, neither implies the other: a credit means that the server's slot is free, and the completion of the
	// last WRITE from our slot means that ours is. Until then the device may retransmit its packets out of the slot.
	for c.credits == 0 {
		if _, err := c.await(ctx); err != nil {
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

// await waits for one answer of the server.
func (c *client) await(ctx context.Context) (verdict byte, err error) {
	wc, err := c.id.GetRecvComp(ctx)
	if errors.Is(err, io.EOF) {
		return undecided, errors.New("the server closed the connection before it stored the file")
	}
	if err == nil {
		err = wc.Err() // if the server is gone: WCWRFlushErr, which names the WRITE that failed first
	}
	if err != nil {
		return undecided, err
	}
	a, err := decodeAnswer(c.answer(wc.WRID)[:wc.ByteLen])
	if err != nil {
		return undecided, err
	}
	if c.credits += a.credits; c.credits > c.ring.Slots {
		return undecided, fmt.Errorf("%d credits, but the server has %d slots", c.credits, c.ring.Slots)
	}
	if a.verdict == refused {
		return refused, fmt.Errorf("the server refused the file: %q", a.reason)
	}
	return a.verdict, c.receive(wc.WRID)
}

// disconnect ends the connection and waits until the server has confirmed it.
func (c *client) disconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.id.Disconnect(ctx)
}

// close destroys everything in the reverse order: the QP with its requests, their region, the region's memory. Without
// a disconnect before it, it also informs the server.
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

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// client is a connection to a server. Its methods are safe for concurrent use; they take turns.
type client struct {
	mu     sync.Mutex
	id     *rdmacm.ID
	buf    []byte // slots of a READ, a request, an answer
	mr     *verbs.MR
	table  uint64 // address of the table
	rkey   uint32
	slots  int
	broken error     // of the connection; every later call returns it
	torn   int       // reads that were repeated
	onTorn func(int) // for tests; may be nil
}

// The parts of the buffer.
const (
	requestAt = near * slotSize
	answerAt  = requestAt + maxRequest
	bufSize   = answerAt + helloSize
)

// dial connects to a server.
func dial(ctx context.Context, address string) (*client, error) {
	c := &client{buf: make([]byte, bufSize)}
	if err := c.connect(ctx, address); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *client) connect(ctx context.Context, address string) (err error) {
	if c.id, err = rdmacm.Dial(ctx, address, &rdmacm.Options{Prepare: c.prepare}); err != nil {
		return err
	}
	return c.hello(ctx)
}

// prepare posts the receive of the hello, which the server sends as soon as it is connected.
func (c *client) prepare(id *rdmacm.ID) (err error) {
	if c.mr, err = id.RegMsgs(c.buf); err != nil {
		return err
	}
	return id.PostRecv(0, c.buf[answerAt:bufSize], c.mr)
}

// hello takes the place of the table.
func (c *client) hello(ctx context.Context) error {
	b := c.buf[answerAt:bufSize]
	n, err := c.received(ctx)
	if err != nil {
		return err
	}
	if n != helloSize {
		return fmt.Errorf("a hello of %d bytes: must be %d; is it another service?", n, helloSize)
	}
	c.table, c.rkey = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])
	c.slots = int(binary.LittleEndian.Uint32(b[12:]))
	if c.slots < 1 || c.slots&(c.slots-1) != 0 {
		return fmt.Errorf("a table of %d slots: must be a power of 2; is it another service?", c.slots)
	}
	return nil
}

// received waits for a message and returns its length.
func (c *client) received(ctx context.Context) (int, error) {
	wc, err := c.id.GetRecvComp(ctx)
	if err == nil {
		err = wc.Err()
	}
	return int(wc.ByteLen), err
}

// get reads a key with one RDMA READ, in which the server's processor has no part. It reads again while the server is
// writing one of the slots. The version is for put and remove.
func (c *client) get(ctx context.Context, key string) (value []byte, version uint64, err error) {
	if len(key) == 0 || len(key) > maxKey {
		return nil, 0, errSize
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, 0, c.broken
	}
	for tries := 1; ; tries++ {
		if err := c.read(ctx, home(key, c.slots)); err != nil {
			return nil, 0, c.fail(err)
		}
		value, version, err := search(c.buf[:requestAt], key)
		if !errors.Is(err, errTorn) {
			return bytes.Clone(value), version, err
		}
		c.torn++
		if c.onTorn != nil {
			c.onTorn(tries)
		}
	}
}

// read reads the slots from one on.
func (c *client) read(ctx context.Context, slot int) error {
	at := c.table + uint64(slot)*slotSize
	if err := c.id.PostRead(0, c.buf[:requestAt], c.mr, verbs.SendSignaled, at, c.rkey); err != nil {
		return err
	}
	wc, err := c.id.GetSendComp(ctx)
	if err != nil {
		return err
	}
	return wc.Err()
}

// put writes a key, if it has the version, and returns the new version. The version may be anyVersion, or noVersion for
// a key that does not exist.
func (c *client) put(ctx context.Context, key string, value []byte, version uint64) (uint64, error) {
	return c.ask(ctx, opPut, key, value, version)
}

// remove deletes a key, if it has the version.
func (c *client) remove(ctx context.Context, key string, version uint64) error {
	_, err := c.ask(ctx, opDelete, key, nil, version)
	return err
}

// ask sends a request and waits for its answer.
func (c *client) ask(ctx context.Context, op byte, key string, value []byte, version uint64) (uint64, error) {
	if len(key) == 0 || len(key) > maxKey || len(value) > maxValue {
		return 0, errSize
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	b := append(c.buf[requestAt:requestAt], op, byte(len(key)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	b = binary.LittleEndian.AppendUint64(b, version)
	b = append(append(b, key...), value...)
	answer := c.buf[answerAt : answerAt+answerSize]
	if err := c.id.PostRecv(0, answer, c.mr); err != nil {
		return 0, c.fail(err)
	}
	if err := c.id.PostSend(0, b, c.mr, verbs.SendSignaled); err != nil {
		return 0, c.fail(err)
	}
	wc, err := c.id.GetSendComp(ctx)
	if err == nil {
		err = wc.Err()
	}
	if err != nil {
		return 0, c.fail(err)
	}
	n, err := c.received(ctx)
	if err != nil {
		return 0, c.fail(err)
	}
	if n != answerSize || int(answer[0]) >= len(statuses) {
		return 0, c.fail(errors.New("a malformed answer"))
	}
	return binary.LittleEndian.Uint64(answer[1:]), statuses[answer[0]]
}

// fail ends the use of the connection: a request may be outstanding, and its result would be taken for the next one's.
func (c *client) fail(err error) error {
	c.broken = fmt.Errorf("connection to the server: %w", err)
	return c.broken
}

// close ends the connection, and then deregisters the memory that its requests name. Both may be missing.
func (c *client) close() (err error) {
	if c.id != nil {
		err = c.id.Close()
	}
	if c.mr != nil {
		err = errors.Join(err, c.mr.Close())
	}
	return err
}

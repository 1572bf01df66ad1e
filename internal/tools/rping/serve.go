package rping

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const backlog = 3

// serve is the server: for one connection, or with -P for any number.
func (p *program) serve(id *rdmacm.ID) error {
	defer id.Close()
	if err := id.BindAddr(netip.AddrPortFrom(p.opts.bind, p.opts.port)); err != nil {
		return err
	}
	p.debugf("rdma_bind_addr successful")
	p.debugf("rdma_listen")
	if err := id.Listen(backlog); err != nil {
		return err
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		select {
		case <-p.ctx.Done():
			return nil
		case <-p.gone:
			return errGone
		case c := <-p.requests:
			if !p.opts.persistent {
				return c.serve()
			}
			conns.Go(func() {
				if err := c.serve(); err != nil {
					p.errorf("rping server failed: %v", err)
				}
			})
		}
	}
}

// serve serves one client until it disconnects.
func (c *conn) serve() error {
	defer c.tearDown()
	if err := c.setUp(); err != nil {
		return err
	}
	if err := c.accept(); err != nil {
		return fmt.Errorf("connect error: %w", err)
	}
	err := c.answer()
	if errors.Is(err, errDisconnected) {
		c.errorf("wait for RDMA_READ_ADV state 10")
		err = nil
	}
	_ = c.id.Disconnect(c.ctx)
	return err
}

func (c *conn) accept() error {
	c.debugf("accepting client connection request")
	var p *rdmacm.ConnParam
	if c.opts.ownQP {
		if err := c.modify(verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS); err != nil {
			return err
		}
		p = c.param()
	}
	if err := c.id.Accept(c.ctx, p); err != nil {
		return err
	}
	return c.step(rdmacm.EventEstablished)
}

// answer READs and WRITEs the buffers that the client offers.
func (c *conn) answer() error {
	for {
		addr, rkey, n, err := c.offer()
		if err != nil {
			return err
		}
		wr := verbs.SendWR{Opcode: verbs.WRRDMARead, RemoteAddr: addr, RKey: rkey, SGList: []verbs.SGE{c.data.SGE(0, n)}}
		if err := c.move(wr, verbs.WCRDMARead); err != nil {
			return err
		}
		if c.opts.verbose {
			c.printf("server ping data: %s", text(c.data.Bytes()))
		}
		if err := c.tell(nil); err != nil {
			return err
		}
		if addr, rkey, _, err = c.offer(); err != nil {
			return err
		}
		n = bytes.IndexByte(c.data.Bytes(), 0) + 1
		wr = verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: addr, RKey: rkey, SGList: []verbs.SGE{c.data.SGE(0, n)}}
		if err := c.move(wr, verbs.WCRDMAWrite); err != nil {
			return err
		}
		if err := c.tell(nil); err != nil {
			return err
		}
	}
}

// offer waits for the address of a client's buffer.
func (c *conn) offer() (addr uint64, rkey uint32, n int, err error) {
	if err = c.await(verbs.WCRecv); err != nil {
		return 0, 0, 0, err
	}
	b := c.recv.Bytes()
	addr, rkey = be.Uint64(b), be.Uint32(b[8:])
	size := be.Uint32(b[12:]) // it may exceed an int
	c.debugf("Received rkey %x addr %x len %d from peer", rkey, addr, size)
	if uint64(size) > uint64(c.opts.size) {
		return 0, 0, 0, fmt.Errorf("the client offers %d bytes: must be at most %d; use -S", size, c.opts.size)
	}
	return addr, rkey, int(size), c.postRecv()
}

// move performs a READ or WRITE and waits for its completion.
func (c *conn) move(wr verbs.SendWR, done verbs.WCOpcode) error {
	if err := c.post(wr); err != nil {
		return err
	}
	return c.await(done)
}

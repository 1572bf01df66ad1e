package rsocket_test

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

func TestR_MAP_01_02_03_06_07_08_12_Mapping(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 10000)
		fresh := p.socket(p.a, rsocket.SockStream)
		_, err := fresh.IOMap(mem, rsocket.ProtWrite, 0)
		p.errno("no connection", err, syscall.EINVAL)
		c, s := p.sockets(func(c *rsocket.Socket) { p.ok(c.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 2)) }, nil)
		_, err = c.IOMap(mem, rsocket.ProtWrite, 0)
		p.errno("the peer has no room", err, syscall.ENOMEM)
		_, err = s.IOMap(mem, 1, 0)
		p.errno("protection", err, syscall.EINVAL)
		if off := must(s.IOMap(mem[:1000], rsocket.ProtWrite, 5000))(p); off != 5000 {
			t.Error(off)
		}
		chosen := must(s.IOMap(mem[2000:3000], rsocket.ProtWrite, -1))(p)
		must(s.IOMap(mem[4000:5000], rsocket.ProtNone, 0))(p) // needs no room at the peer
		_, err = s.IOMap(mem[3000:4000], rsocket.ProtWrite, 9000)
		p.errno("a third one", err, syscall.ENOMEM)
		// The peer knows of them when something comes that was sent afterwards.
		if n := must(c.IOWrite([]byte("early"), 5000, 0))(p); n != 0 {
			t.Errorf("%d bytes to an unknown map", n)
		}
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		if n := must(c.IOWrite([]byte("first"), 5010, 0))(p); n != 5 {
			t.Error(n)
		}
		if n := must(c.IOWrite([]byte("second"), chosen, 0))(p); n != 6 {
			t.Error(n)
		}
		if n := must(c.IOWrite(make([]byte, 20), 5990, 0))(p); n != 10 { // the map ends
			t.Error(n)
		}
		must(c.Send([]byte("!"), 0))(p)
		must(s.Recv(make([]byte, 1), 0))(p)
		if string(mem[10:15]) != "first" || string(mem[2000:2006]) != "second" {
			t.Errorf("%q %q", mem[10:15], mem[2000:2006])
		}
		p.errno("another length", s.IOUnmap(mem[:999]), syscall.EINVAL)
		p.errno("another place", s.IOUnmap(mem[1:1001]), syscall.EINVAL)
		p.ok(s.IOUnmap(mem[:1000]))
		p.errno("once more", s.IOUnmap(mem[:1000]), syscall.EINVAL)
		if off := must(s.IOMap(mem[3000:4000], rsocket.ProtWrite, 9000))(p); off != 9000 { // there is room again
			t.Error(off)
		}
		p.closeSockets(fresh, c, s)
	})
}

// What IOWrite writes is there before what Send sends afterwards, and comes without notice.
func TestR_MAP_04_05_09_10_11_13_14_Order(t *testing.T) {
	inBubble(t, rdmatest.Faults{Loss: 0.02, Reorder: 0.05}, func(p *places) {
		mem := make([]byte, 300000)
		c, s := p.sockets(func(c *rsocket.Socket) { p.ok(c.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, rsocket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		one := make([]byte, 1)
		for i := range 20 {
			data := text(1+i*14000, uint64(i))
			if n := must(c.IOWrite(data, 7, 0))(p); n != len(data) {
				t.Error(n)
			}
			must(c.Send([]byte{byte(i)}, 0))(p)
			must(s.Recv(one, 0))(p)
			if one[0] != byte(i) || !bytes.Equal(mem[7:7+len(data)], data) {
				t.Fatalf("round %d: the data is not there", i)
			}
		}
		if e := p.poll(s, rsocket.PollIn, 0); e != 0 {
			t.Errorf("the receiver was told: %#x", e)
		}
		c.SetNonblock(true)
		if n := must(c.IOWrite(mem[:250000], 0, 0))(p); n == 0 || n == 250000 {
			t.Errorf("%d bytes without waiting", n)
		}
		c.SetNonblock(false)
		p.closeSockets(c, s)
	})
}

// A write to memory that was unmapped ends the connection, and harms nobody else.
func TestW_RS_26_WriteToUnmapped(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 1000)
		c, s := p.sockets(func(c *rsocket.Socket) { p.ok(c.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, rsocket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		p.ok(s.IOUnmap(mem))
		must(c.IOWrite([]byte("x"), 0, 0))(p)
		n, err := c.Recv(make([]byte, 1), 0)
		if p.errno("the writer", err, syscall.ECONNRESET); n != 0 || mem[0] != 0 {
			t.Error(n, mem[0])
		}
		p.closeSockets(c, s)
	})
}

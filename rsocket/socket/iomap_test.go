package socket_test

import (
	"bytes"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

func TestR_MAP_01_02_03_06_07_08_12_Mapping(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 10000)
		fresh := p.socket(p.A, socket.SockStream)
		_, err := fresh.IOMap(mem, socket.ProtWrite, 0)
		p.errno("no connection", err, syscall.EINVAL)
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 2)) }, nil)
		_, err = c.IOMap(mem, socket.ProtWrite, 0)
		p.errno("the peer has no room", err, syscall.ENOMEM)
		_, err = s.IOMap(mem, 1, 0)
		p.errno("protection", err, syscall.EINVAL)
		_, err = s.IOMap(nil, socket.ProtWrite, 0)
		p.errno("no buffer", err, syscall.EINVAL)
		if off := must(s.IOMap(mem[:1000], socket.ProtWrite, 5000))(p); off != 5000 {
			t.Error(off)
		}
		chosen := must(s.IOMap(mem[2000:3000], socket.ProtWrite, -1))(p)
		must(s.IOMap(mem[4000:5000], socket.ProtNone, 0))(p) // needs no room at the peer
		_, err = s.IOMap(mem[3000:4000], socket.ProtWrite, 9000)
		p.errno("a third one", err, syscall.ENOMEM)
		// The peer knows them when data sent afterwards have arrived.
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
		p.OK(s.IOUnmap(mem[:1000]))
		p.errno("once more", s.IOUnmap(mem[:1000]), syscall.EINVAL)
		if off := must(s.IOMap(mem[3000:4000], socket.ProtWrite, 9000))(p); off != 9000 { // there is room again
			t.Error(off)
		}
		p.closeSockets(fresh, c, s)
	})
}

// Data of IOWrite arrive before data of a later Send, and without an event.
func TestR_MAP_04_05_09_10_11_13_14_Order(t *testing.T) {
	inBubble(t, rdmatest.Faults{Loss: 0.02, Reorder: 0.05}, func(p *places) {
		mem := make([]byte, 300000)
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, socket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		one := make([]byte, 1)
		for i := range 20 {
			data := socktest.Text(1+i*14000, uint64(i))
			if n := must(c.IOWrite(data, 7, 0))(p); n != len(data) {
				t.Error(n)
			}
			must(c.Send([]byte{byte(i)}, 0))(p)
			must(s.Recv(one, 0))(p)
			if one[0] != byte(i) || !bytes.Equal(mem[7:7+len(data)], data) {
				t.Fatalf("round %d: the data has not arrived", i)
			}
		}
		if e := p.poll(s, socket.PollIn, 0); e != 0 {
			t.Errorf("the receiver has an event: %#x", e)
		}
		c.SetNonblock(true)
		if n := must(c.IOWrite(mem[:250000], 0, 0))(p); n == 0 || n == 250000 {
			t.Errorf("%d bytes without waiting", n)
		}
		c.SetNonblock(false)
		p.closeSockets(c, s)
	})
}

// IOWrite needs no credits and no room in the peer's ring. It continues when its own buffer has room, also if a reader
// processes that completion.
func TestR_MAP_09_IOWriteWhileTheStreamIsFull(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		mem := make([]byte, 300000)
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, socket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		sent, err := 0, error(nil)
		for err == nil {
			var n int
			n, err = c.Send(make([]byte, 5000), socket.MsgDontWait)
			sent += n
			time.Sleep(10 * time.Millisecond) // until it is acknowledged
		}
		p.errno("a full stream", err, syscall.EAGAIN)
		var w sync.WaitGroup
		w.Go(func() {
			if n, err := c.Recv(make([]byte, 2), 0); n != 2 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
		synctest.Wait()
		data := socktest.Text(len(mem), 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if n, err := c.IOWrite(data, 0, 0); n != len(data) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("IOWrite waits for the stream")
		}
		must(s.Recv(make([]byte, sent), socket.MsgWaitAll))(p)
		<-done
		must(c.Send([]byte("!"), 0))(p)
		must(s.Recv(make([]byte, 1), 0))(p)
		if !bytes.Equal(mem, data) {
			t.Error("the data has not arrived")
		}
		must(s.Send([]byte("ok"), 0))(p)
		w.Wait()
		p.closeSockets(c, s)
	})
}

// Without waiting IOWrite writes what its own buffer has room for, and fails when there is none. It fails after
// Shutdown, too.
func TestIOWriteWithoutRoom(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 300000)
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, socket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		restore := p.LoseRequests()
		if n, err := c.IOWrite(mem, 0, socket.MsgDontWait); n == 0 || n == len(mem) || err != nil {
			t.Errorf("%d bytes of %d, %v", n, len(mem), err)
		}
		n, err := c.IOWrite(mem, 0, socket.MsgDontWait)
		if p.errno("no room", err, syscall.EAGAIN); n != 0 {
			t.Errorf("%d bytes without room", n)
		}
		restore()
		p.OK(c.Shutdown(socket.ShutWrite))
		_, err = c.IOWrite(mem, 0, 0)
		p.errno("after Shutdown, as Send", err, syscall.ECONNRESET)
		p.closeSockets(c, s)
	})
}

// A map that was unmapped before its message was sent is not sent to the peer. Maps use at most half of the credits of
// a connection.
func TestW_RS_22_W_RS_26_ManyMaps(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 1000)
		c, s := p.sockets(func(c *socket.Socket) {
			p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1))
			p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMARQSize, 1))
		}, nil)
		if n := must(c.OptionInt(socket.SolRDMA, socket.RDMARQSize))(p); n != 16 { // R-OPT-04
			t.Errorf("%d receives", n)
		}
		one := make([]byte, 1)
		tell := func() {
			must(s.Send(one, 0))(p)
			must(c.Recv(one, 0))(p)
		}
		must(s.IOMap(mem, socket.ProtWrite, 0))(p)
		p.OK(s.IOUnmap(mem))
		tell()
		if n := must(c.IOWrite(one, 0, 0))(p); n != 0 {
			t.Errorf("%d bytes to a map that was not sent", n)
		}
		for i := range 8 { // the first one has cost nothing
			must(s.IOMap(mem, socket.ProtWrite, int64(i*1000)))(p)
			tell()
			if n := must(c.IOWrite(one, int64(i*1000), 0))(p); n != 1 {
				t.Errorf("map %d: %d bytes", i, n)
			}
			must(c.Send(one, 0))(p) // it is there before what was sent after it
			must(s.Recv(one, 0))(p)
			p.OK(s.IOUnmap(mem))
		}
		_, err := s.IOMap(mem, socket.ProtWrite, 0)
		p.errno("one more", err, syscall.ENOMEM)
		p.closeSockets(c, s)
	})
}

// A write to unmapped memory ends the connection. Other connections still work.
func TestW_RS_26_WriteToUnmapped(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 1000)
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, socket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		p.OK(s.IOUnmap(mem))
		must(c.IOWrite([]byte("x"), 0, 0))(p)
		n, err := c.Recv(make([]byte, 1), 0)
		if p.errno("the writer", err, syscall.ECONNRESET); n != 0 || mem[0] != 0 {
			t.Error(n, mem[0])
		}
		p.closeSockets(c, s)
	})
}

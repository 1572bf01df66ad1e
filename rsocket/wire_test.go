package rsocket_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

// raw is a peer that sends the messages of the test: a connected ID of host b, with memory as an rsocket has it.
type raw struct {
	*rdmacm.ID
	p           *places
	ring, table []byte
	mrs         []*verbs.MR
	peer        rs.ConnData
	asked       rdmacm.ConnParam
}

const rawRQ = 32

// rawServer accepts the connection of an rsocket, which dial makes meanwhile.
func (p *places) rawServer(dial func(addr string)) *raw {
	p.Helper()
	l, err := rdmacm.Listen(bg, p.B.At(0), &rdmacm.Options{Host: p.B.Host, QP: caps})
	p.OK(err)
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		dial(netip.AddrPortFrom(p.B.Addr, l.Addr().Port()).String())
	}()
	r := &raw{ID: must(l.Request(bg))(p), p: p}
	r.asked = r.Event().Conn
	r.peer, err = rs.ParseConnData(r.asked.PrivateData)
	p.OK(err)
	p.OK(r.Accept(bg, &rdmacm.ConnParam{RNRRetryCount: 7, PrivateData: r.setUp()}))
	<-done
	return r
}

// setUp makes the memory and posts receives.
func (r *raw) setUp() []byte {
	r.ring, r.table = make([]byte, 2000), make([]byte, rs.TableLen(4))
	for _, b := range [][]byte{r.ring, r.table} {
		r.mrs = append(r.mrs, must(r.RegWrite(b))(r.p))
	}
	for range rawRQ {
		r.p.OK(r.PostRecvV(0))
	}
	d := rs.ConnData{
		Flags: rs.HostFlags(), Credits: rawRQ, IOMaps: 4, Table: rs.SGE{Addr: r.mrs[1].Addr(), Key: r.mrs[1].RKey(),
			Length: 2},
		Data: rs.SGE{Addr: r.mrs[0].Addr(), Key: r.mrs[0].RKey(), Length: 1000},
	}
	return d.Append(nil)
}

// next is the next message from the rsocket.
func (r *raw) next() verbs.WC {
	r.p.Helper()
	wc := must(r.GetRecvComp(bg))(r.p)
	r.p.OK(wc.Err())
	return wc
}

// say writes to the rsocket's memory, with a control message as immediate data.
func (r *raw) say(word uint32, to rs.SGE, b []byte) {
	r.p.Helper()
	r.p.OK(r.QP().PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline | verbs.SendSignaled, Inline: append([]byte{}, b...),
		ImmData: word, RemoteAddr: to.Addr, RKey: to.Key,
	}))
}

// left reports whether the rsocket disconnects within a minute. It reads the messages sent before.
func (r *raw) left() bool {
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	var err error
	for err == nil {
		_, err = r.GetRecvComp(ctx)
	}
	return errors.Is(err, io.EOF)
}

func (r *raw) close() {
	r.p.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	_ = r.Disconnect(ctx)
	for _, mr := range r.mrs {
		r.p.OK(mr.Close())
	}
	r.p.OK(r.Close())
}

// rawPair returns an rsocket and the raw peer to which it is connected.
func (p *places) rawPair() (c *rsocket.Conn, r *raw) {
	p.Helper()
	r = p.rawServer(func(addr string) {
		nc, err := p.dialer(small).Dial("tcp", addr)
		p.OK(err)
		c = nc.(*rsocket.Conn)
	})
	return c, r
}

// The request of a client, the memory that it exposes, and the format of its messages.
func TestW_RS_02_03_04_15_19_23_Wire(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		a := r.asked
		if a.ResponderResources != 0 || a.InitiatorDepth != 0 || !a.FlowControl || a.RetryCount != 7 || a.RNRRetryCount != 7 {
			t.Errorf("the parameters of the request are %+v", a)
		}
		if d := r.peer; d.Credits != 16 || d.Table.Length != 2 || d.Data.Length != 1024 || d.Flags != rs.HostFlags() ||
			d.IOMaps != 0 {
			t.Errorf("the connection data %+v", d)
		}
		// The second half of its buffer, in the second entry of the table.
		wc := r.next()
		e := rs.ParseSGE(r.table[rs.SGELen:], binary.NativeEndian)
		if want := (rs.SGE{Addr: r.peer.Data.Addr + 1024, Key: r.peer.Data.Key,
			Length: 1024}); wc.ImmData != rs.Word(rs.OpSGL, 16) || wc.ByteLen != 16 || e != want {
			t.Errorf("the first update: %#x, %d bytes, %+v", wc.ImmData, wc.ByteLen, e)
		}
		must(c.Write([]byte("hello")))(p)
		if wc := r.next(); wc.ImmData != rs.Word(rs.OpData, 5) || wc.ByteLen != 5 || string(r.ring[:5]) != "hello" {
			t.Errorf("data: %#x, %d bytes, %q", wc.ImmData, wc.ByteLen, r.ring[:5])
		}
		// Its ring is filled in the order of the messages. After 8 of them it sends an update.
		at := r.peer.Data
		buf := make([]byte, 10)
		for i := range 30 {
			b := []byte{byte(i), 1}
			r.say(rs.Word(rs.OpData, 2), at, b)
			at.Addr += 2
			if _, err := io.ReadFull(c, buf[:2]); err != nil || !bytes.Equal(buf[:2], b) {
				t.Fatalf("message %d: %v %v", i, buf[:2], err)
			}
			if i%8 == 7 {
				if wc := r.next(); wc.ImmData != rs.Word(rs.OpSGL, uint32(i+1+16)) || wc.ByteLen != 0 {
					t.Errorf("update after %d: %#x, %d bytes", i, wc.ImmData, wc.ByteLen)
				}
			}
		}
		p.OK(c.Close())
		if wc := r.next(); wc.ImmData != rs.Word(rs.OpCtrl, rs.CtrlDisconnect) || wc.ByteLen != 0 {
			t.Errorf("the end: %#x", wc.ImmData)
		}
		r.close()
	})
}

// Another implementation's control messages have addresses without memory.
func TestW_RS_11_12_ZeroLengthWrites(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		garbage := rs.SGE{Addr: 0xdeadbeef, Key: 0x12345}
		// keepalive
		r.p.OK(r.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, RemoteAddr: garbage.Addr,
			RKey: garbage.Key}))
		r.say(rs.Word(rs.OpSGL, 100), garbage, nil)
		r.say(rs.Word(rs.OpCtrl, rs.CtrlKeepalive), garbage, nil)
		r.say(rs.Word(rs.OpCtrl, rs.CtrlShutdown), garbage, nil)
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
		must(c.Write([]byte("x")))(p)
		p.OK(c.Close())
		r.close()
	})
}

// IO maps follow the table of SGEs. The address of a write is computed from the offset.
func TestW_RS_07_24_IOMapsOnTheWire(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		r.next() // the first update
		mem := make([]byte, 500)
		must(c.IOMap(mem, 0x1000))(p)
		must(c.Write([]byte("x")))(p)
		wc := r.next()
		m := rs.ParseIOMap(r.table[2*rs.SGELen:], binary.NativeEndian)
		if wc.ImmData != rs.Word(rs.OpIOMap, 0) || wc.ByteLen != 24 || m.Offset != 0x1000 || m.Length != 500 {
			t.Errorf("%#x, %d bytes, %+v", wc.ImmData, wc.ByteLen, m)
		}
		r.next() // x
		p.OK(r.QP().PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte("direct"),
			RemoteAddr: m.Addr + 10, RKey: m.Key,
		}))
		must(r.GetSendComp(bg))(p)
		if string(mem[10:16]) != "direct" {
			t.Errorf("%q", mem[10:16])
		}
		p.OK(c.Close())
		r.close()
	})
}

// A peer that sends invalid messages loses its connection. Other connections still work.
func TestInvalidMessages(t *testing.T) {
	for name, lie := range map[string]func(r *raw){
		"data beyond what is free":     func(r *raw) { r.say(rs.Word(rs.OpData, 5000), rs.SGE{}, nil) },
		"data announced, none written": func(r *raw) { r.say(rs.Word(rs.OpData, 100), rs.SGE{}, nil) },
		"unknown operation":            func(r *raw) { r.say(rs.Word(5, 1), rs.SGE{}, nil) },
		"entry written elsewhere":      func(r *raw) { r.say(rs.Word(rs.OpSGL, 1), r.peer.Data, make([]byte, 16)) },
		"IO map without a table":       func(r *raw) { r.say(rs.Word(rs.OpIOMap, 9), r.peer.Data, make([]byte, 24)) },
		"more messages than credits": func(r *raw) {
			for range 17 {
				r.say(rs.Word(rs.OpData, 1), r.peer.Data, []byte{1})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rdmatest.Faults{}, func(p *places) {
				c, r := p.rawPair()
				a, b := p.pair(rsocket.Options{}, rsocket.Options{}) // that of others
				lie(r)
				var err error
				for err == nil { // what was right before may be read
					synctest.Wait()
					_, err = c.Read(make([]byte, 100))
				}
				if !errors.Is(err, syscall.EPROTO) {
					t.Errorf("read: %v", err)
				}
				if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPROTO) {
					t.Errorf("write: %v", err)
				}
				must(a.Write([]byte("x")))(p)
				must(b.Read(make([]byte, 1)))(p)
				p.OK(c.Close())
				r.close()
				p.OK(a.Close())
				p.OK(b.Close())
			})
		})
	}
}

// An invalid entry in the peer's table makes the writer's connection fail: the peer's device refuses the WRITE.
func TestInvalidTableEntry(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		bad := rs.SGE{Addr: 1, Key: 2, Length: 1 << 31}
		r.say(rs.Word(rs.OpSGL, 50), rs.SGE{Addr: r.peer.Table.Addr + rs.SGELen, Key: r.peer.Table.Key},
			bad.Append(nil, binary.LittleEndian))
		data := make([]byte, 3000)
		_, err := c.Write(data)
		for err == nil {
			_, err = c.Write(data)
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v", err)
		}
		p.OK(c.Close())
		r.close()
	})
}

// Close sends a DREQ, which ends the connection even without a DISCONNECT.
func TestW_RS_29_30_Disconnecting(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, r := p.rawPair()
		r.say(rs.Word(rs.OpData, 3), r.peer.Data, []byte("abc"))
		must(r.GetSendComp(bg))(p)
		c1, cancel := context.WithTimeout(bg, time.Second) // the answer comes with Close
		_ = r.Disconnect(c1)
		cancel()
		got := must(io.ReadAll(c))(p)
		if string(got) != "abc" {
			t.Errorf("read %q", got)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: %v", err)
		}
		p.OK(c.Close())
		r.close()

		c, r = p.rawPair()
		p.OK(c.CloseWrite())
		p.OK(c.CloseRead()) // all is over, but the socket is there
		time.Sleep(time.Second)
		for {
			if wc := r.next(); wc.ImmData == rs.Word(rs.OpCtrl, rs.CtrlDisconnect) {
				break
			}
		}
		if r.left() {
			t.Error("the DREQ was sent before Close")
		}
		p.OK(c.Close())
		time.Sleep(time.Second)
		p.OK(r.Disconnect(bg)) // which finds that the peer has asked for it
		if ev := r.Event(); ev == nil || ev.Type != rdmacm.EventDisconnected {
			t.Errorf("after Close: %v", ev)
		}
		r.close()
	})
}

// When the DISCONNECT is acknowledged the QP moves to ERR, even if the socket is not closed: the peer can no longer
// write to its memory.
func TestW_RS_29_QPGoesToErr(t *testing.T) {
	for name, end := range map[string]func(p *places, c *rsocket.Conn, r *raw){
		"this side first": func(p *places, c *rsocket.Conn, _ *raw) {
			p.OK(c.CloseRead())
			p.OK(c.CloseWrite())
		},
		"the peer first": func(p *places, c *rsocket.Conn, r *raw) {
			r.say(rs.Word(rs.OpData, 3), r.peer.Data, []byte("abc"))
			r.say(rs.Word(rs.OpCtrl, rs.CtrlDisconnect), rs.SGE{}, nil)
			synctest.Wait()
			p.OK(c.CloseWrite())
			p.OK(c.CloseRead())
		},
		"this side has ended writing before": func(p *places, c *rsocket.Conn, r *raw) {
			p.OK(c.CloseWrite())
			r.say(rs.Word(rs.OpCtrl, rs.CtrlDisconnect), rs.SGE{}, nil)
			if got := must(io.ReadAll(c))(p); len(got) != 0 {
				p.Errorf("read %q", got)
			}
		},
		"the peer first, data to be read": func(p *places, c *rsocket.Conn, r *raw) {
			r.say(rs.Word(rs.OpData, 3), r.peer.Data, []byte("abc"))
			r.say(rs.Word(rs.OpCtrl, rs.CtrlDisconnect), rs.SGE{}, nil)
			if got := must(io.ReadAll(c))(p); string(got) != "abc" {
				p.Errorf("read %q", got)
			}
			p.OK(c.CloseWrite())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rdmatest.Faults{}, func(p *places) {
				c, r := p.rawPair()
				end(p, c, r)
				synctest.Wait()
				for range 3 { // what was said before
					if wc, err := r.SendCQ().Poll(make([]verbs.WC, 8)); wc == 0 {
						p.OK(err)
						break
					}
				}
				r.say(rs.Word(rs.OpData, 1), r.peer.Data, []byte("x"))
				if wc, err := r.GetSendComp(bg); err == nil && wc.Status == verbs.WCSuccess {
					t.Error("the peer's memory can still be written")
				}
				p.OK(c.Close())
				r.close()
			})
		})
	}
}

// A handshake that a client does not complete does not delay the others.
func TestW_RS_31_HandshakesDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		host := rdmacm.NewHost(must(p.Fab.NewDevice("c", netip.MustParseAddr("198.18.0.3")))(p))
		silent := must(host.CreateID(must(host.CreateEventChannel())(p), rdmacm.PSTCP, nil))(p)
		to := netip.MustParseAddrPort(l.Addr().String())
		p.OK(silent.ResolveAddr(bg, netip.AddrPort{}, to, time.Second))
		p.OK(silent.ResolveRoute(bg, time.Second))
		// It never sends its RTU: for an ID without a QP the program must do that.
		p.OK(silent.Connect(bg, &rdmacm.ConnParam{QPNum: 0x77, RetryCount: 7, RNRRetryCount: 7,
			PrivateData: (&rs.ConnData{Credits: 16, Table: rs.SGE{Length: 2}}).Append(nil)}))
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		a, b := p.pairOf(l, rsocket.Options{})
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		p.OK(a.Close())
		p.OK(b.Close())
		p.OK(silent.Close())
		p.OK(l.Close())
		time.Sleep(10 * time.Minute)
		p.OK(host.Close())
	})
}

package rsocket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/verbs"
)

// small are sizes with which rings and counters wrap around soon.
var small = rsocket.Options{SendBuf: 4096, RecvBuf: 2048, SQSize: 16, RQSize: 16}

// transfer writes pieces of random sizes at one end and reads pieces of other sizes at the other, until the end of the
// stream.
func transfer(from, to *rsocket.Conn, data []byte, seed uint64) error {
	var sending sync.WaitGroup
	var sent error
	sending.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1))
		for rest := data; len(rest) > 0 && sent == nil; {
			n := min(len(rest), 1+r.IntN(1<<r.IntN(17)))
			_, sent = from.Write(rest[:n])
			rest = rest[n:]
		}
		if sent == nil {
			sent = from.CloseWrite()
		}
	})
	r := rand.New(rand.NewPCG(seed, 2))
	buf := make([]byte, 1<<17)
	at := 0
	for {
		n, err := to.Read(buf[:1+r.IntN(1<<r.IntN(18))])
		if !bytes.Equal(buf[:n], data[at:at+n]) {
			return errors.New("the data is not what was sent")
		}
		at += n
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	sending.Wait()
	if at < len(data) {
		return io.ErrUnexpectedEOF
	}
	return sent
}

// Every byte arrives once and in order, in both directions at the same time, for all sizes and network faults.
func TestR_IO_14_TransferBothWays(t *testing.T) {
	for name, c := range map[string]struct {
		client, server rsocket.Options
		faults         rdmatest.Faults
		bytes          int
	}{
		"defaults":  {bytes: 3 << 20},
		"small":     {client: small, server: small, bytes: 1 << 18},
		"one_small": {server: small, bytes: 1 << 19},
		"odd": {client: rsocket.Options{RecvBuf: 4099, SendBuf: 5001, Inline: 1000},
			server: rsocket.Options{RecvBuf: 3}, bytes: 1 << 12},
		"faulty_network": {faults: rdmatest.Faults{Loss: 0.01, Duplicate: 0.01, Reorder: 0.02}, bytes: 1 << 19},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.faults, func(p *places) {
				a, b := p.pair(c.client, c.server)
				var both sync.WaitGroup
				both.Go(func() {
					if err := transfer(a, b, socktest.Text(c.bytes, 1), 1); err != nil {
						t.Error("to the server:", err)
					}
				})
				both.Go(func() {
					if err := transfer(b, a, socktest.Text(c.bytes, 2), 2); err != nil {
						t.Error("to the client:", err)
					}
				})
				both.Wait()
				p.OK(a.Close())
				p.OK(b.Close())
			})
		})
	}
}

// A message may have a single byte at the end of the send buffer, or at its beginning.
func TestOneByteBesideTheEndOfTheBuffer(t *testing.T) {
	for _, first := range []int{4095, 3897} { // and then 200 bytes, of which 1 and 199 precede the end
		inBubble(t, rdmatest.Faults{}, func(p *places) {
			a, b := p.pair(rsocket.Options{SendBuf: 4096}, rsocket.Options{})
			for i, n := range []int{first, 200} {
				data, got := socktest.Text(n, uint64(i)), make([]byte, n)
				must(a.Write(data))(p)
				must(io.ReadFull(b, got))(p)
				if !bytes.Equal(got, data) {
					t.Errorf("%d bytes after %d: the data is not what was sent", n, first)
				}
			}
			p.OK(a.Close())
			p.OK(b.Close())
		})
	}
}

// Data written before Close arrive even if the reader begins after it. The end of the stream follows.
func TestR_IO_03_DataBeforeCloseArrives(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		data := socktest.Text(100000, 1)
		must(a.Write(data))(p)
		p.OK(a.Close())
		got := must(io.ReadAll(b))(p)
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes of %d arrived", len(got), len(data))
		}
		p.OK(b.Close())
	})
}

// The same with as many messages as there are credits: the peer has no receive posted for DISCONNECT.
func TestW_RS_21_CloseWithoutCredits(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(small, small)
		for i := range 16 {
			must(a.Write([]byte{byte(i)}))(p)
		}
		p.OK(a.Close())
		got := must(io.ReadAll(b))(p)
		if len(got) != 16 || got[15] != 15 {
			t.Errorf("got %v", got)
		}
		p.OK(b.Close())
	})
}

// A writer waits for the reader, and continues when the reader has read.
func TestR_IO_15_WriterBlockedOnFlowControlStillReads(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(small, small)
		var w sync.WaitGroup
		written := false
		w.Go(func() {
			must(a.Write(socktest.Text(100000, 1)))(p)
			written = true
		})
		synctest.Wait()
		if written {
			t.Fatal("100,000 bytes were accepted with buffers of 2048")
		}
		must(b.Write([]byte("hello")))(p)
		got := make([]byte, 5)
		must(io.ReadFull(a, got))(p) // while the writer waits
		must(io.ReadFull(b, make([]byte, 100000)))(p)
		w.Wait()
		if string(got) != "hello" {
			t.Errorf("got %q", got)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// Both sides write more than fits before either reads. Deadlines end the writes, and the accepted bytes arrive.
func TestBothSendWithoutReading(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(small, small)
		data := [2][]byte{socktest.Text(100000, 1), socktest.Text(100000, 2)}
		var sent [2]int
		var w sync.WaitGroup
		for i, c := range []*rsocket.Conn{a, b} {
			p.OK(c.SetWriteDeadline(time.Now().Add(time.Second)))
			w.Go(func() {
				n, err := c.Write(data[i])
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("write: %d, %v", n, err)
				}
				sent[i] = n
			})
		}
		w.Wait()
		for i, c := range []*rsocket.Conn{b, a} {
			got := make([]byte, sent[i])
			must(io.ReadFull(c, got))(p)
			if sent[i] == 0 || !bytes.Equal(got, data[i][:sent[i]]) {
				t.Errorf("%d bytes were accepted; those that arrived differ", sent[i])
			}
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

func TestR_SHUT_02_HalfClose(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		must(a.Write([]byte("question")))(p)
		p.OK(a.CloseWrite())
		p.OK(a.CloseWrite()) // once more does no harm
		if got := must(io.ReadAll(b))(p); string(got) != "question" {
			t.Errorf("the server read %q", got)
		}
		must(b.Write([]byte("answer")))(p)
		if _, err := a.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write after CloseWrite: %v", err)
		}
		p.OK(b.CloseWrite()) // the second half: the connection is over
		if got := must(io.ReadAll(a))(p); string(got) != "answer" {
			t.Errorf("the client read %q", got)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// Both sides end writing at the same time, and the last data of one side are lost and retransmitted. They arrive before
// the end of the stream, even if the writer has closed meanwhile.
func TestW_RS_28_SimultaneousEndsLoseNothing(t *testing.T) {
	for name, close := range map[string]bool{"half-closed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rdmatest.Faults{}, func(p *places) {
				a, b := p.pair(rsocket.Options{}, rsocket.Options{})
				data := socktest.Text(100000, 1)
				again := p.LoseRequests()
				must(a.Write(data))(p)
				var w sync.WaitGroup
				w.Go(func() {
					p.OK(a.CloseWrite())
					if got := must(io.ReadAll(a))(p); string(got) != "bye" {
						t.Errorf("the client read %q", got)
					}
					if close {
						p.OK(a.Close())
					}
				})
				must(b.Write([]byte("bye")))(p)
				p.OK(b.CloseWrite())
				time.Sleep(time.Second)
				again()
				p.OK(b.SetReadDeadline(time.Now().Add(time.Minute)))
				if got := must(io.ReadAll(b))(p); !bytes.Equal(got, data) {
					t.Errorf("%d bytes of %d arrived", len(got), len(data))
				}
				w.Wait()
				p.OK(b.Close())
				if !close {
					p.OK(a.Close())
				}
			})
		})
	}
}

// CloseWrite stops waiting if the peer does not answer. The end of the stream arrives later, without a further call.
func TestR_SHUT_05_EndArrivesLater(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(small, small)
		time.Sleep(time.Second) // b has heard of both halves of a's ring
		again := p.LoseRequests()
		// Four control messages of a are never acknowledged: three updates of the ring and of credits, and a keepalive.
		for _, size := range []int{1024, 1, 1, 1, 1, 1, 1, 1, 1, 1016} {
			must(b.Write(make([]byte, size)))(p)
			must(io.ReadFull(a, make([]byte, size)))(p)
		}
		p.OK(a.SetKeepAlive(500 * time.Millisecond))
		time.Sleep(1100 * time.Millisecond)
		p.OK(a.SetKeepAlive(0)) // or its timer would look after the connection
		for range 12 {
			must(a.Write([]byte{1}))(p)
		}
		p.OK(a.CloseWrite())
		again()
		p.OK(b.SetReadDeadline(time.Now().Add(time.Minute)))
		if got := must(io.ReadAll(b))(p); len(got) != 12 {
			t.Errorf("%d bytes of 12 arrived", len(got))
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// After the peer has closed, reads return the end of the stream and writes fail, both without waiting.
func TestR_IO_04_WriteAfterPeerClosed(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		p.OK(b.Close())
		synctest.Wait()
		if n, err := a.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: %d, %v", n, err)
		}
		if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read: %d, %v", n, err)
		}
		p.OK(a.Close())
	})
}

// Keepalive detects a peer behind a cut network, and ends only its connection.
func TestKeepAliveFindsDeadPeer(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		p.OK(a.SetKeepAlive(time.Minute))
		time.Sleep(10 * time.Minute) // a living one is not
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		start := time.Now()
		_, err := a.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.Is(err, syscall.ETIMEDOUT) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(start); took > 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		p.OK(a.Close())
		p.OK(b.SetLinger(0))
		p.OK(b.Close())
	})
}

func TestR_SOCK_14_ConnectErrors(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		d := p.dialer(rsocket.Options{})
		if _, err := d.Dial("tcp", p.B.At(7471)); !errors.Is(err, syscall.ENODEV) && !errors.Is(err,
			syscall.ECONNREFUSED) && !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("without a listener: %v", err)
		}
		l := p.listen(rsocket.Options{})
		if _, err := d.Dial("tcp", p.B.At(l.Addr().(*net.TCPAddr).Port+1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("without a listener at that port: %v", err)
		}
		if _, err := d.Dial("unix", "/x"); err == nil {
			t.Error("Dial accepts the network unix")
		}
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := d.DialContext(ctx, "tcp", l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("context: %v", err)
		}
		if _, err := d.Dial("tcp", l.Addr().String()); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("without an answer: %v", err)
		}
		p.OK(l.Close())
	})
}

// A client without the rsocket protocol is rejected, and the listener still works.
func TestR_SOCK_16_OtherProtocolIsRejected(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		good := (&rs.ConnData{Credits: 16, Table: rs.SGE{Length: 2}}).Append(nil)
		for name, private := range map[string][]byte{
			"nothing": nil, "version 2": append([]byte{2}, good[1:]...), "a table of 1": append(append([]byte{}, good[:20]...),
				0, 0, 0, 1),
		} {
			_, err := rdmacm.Dial(bg, l.Addr().String(), &rdmacm.Options{Host: p.A.Host, QP: caps,
				Param: &rdmacm.ConnParam{PrivateData: private}})
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %v", name, err)
			}
		}
		a, b := p.pairOf(l, rsocket.Options{})
		p.OK(a.Close())
		p.OK(b.Close())
		p.OK(l.Close())
	})
}

var caps = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}

func TestAcceptDeadlineAndClose(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		p.OK(l.SetDeadline(time.Now().Add(time.Second)))
		if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		p.OK(l.SetDeadline(time.Time{}))
		nc, err := p.dialer(rsocket.Options{}).Dial("tcp", l.Addr().String()) // and nobody accepts it
		p.OK(err)
		var w sync.WaitGroup
		w.Go(func() {
			time.Sleep(time.Second)
			p.OK(l.Close())
		})
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection without Accept: %v", err)
		}
		w.Wait()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		p.OK(nc.Close())
	})
}

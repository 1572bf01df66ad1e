package socket_test

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// Over iWARP a map arrives before data that is sent after it, and data for it before later data of the stream.
func TestW_RS_10_MapsOverTCP(t *testing.T) {
	p := &places{socktest.OverTCP(t)}
	c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 2)) }, nil)
	mem, data, word := make([]byte, 200_000), socktest.Text(100_000, 1), make([]byte, 1)
	off := must(s.IOMap(mem, socket.ProtWrite, 0))(p)
	must(s.Send([]byte{1}, 0))(p)
	must(c.Recv(word, socket.MsgWaitAll))(p)
	if n := must(c.IOWrite(data, off+50_000, 0))(p); n != len(data) {
		t.Errorf("%d bytes of %d were written", n, len(data))
	}
	must(c.Send([]byte{2}, 0))(p)
	must(s.Recv(word, socket.MsgWaitAll))(p)
	if !bytes.Equal(mem[50_000:150_000], data) || word[0] != 2 {
		t.Error("the data did not arrive")
	}
	p.OK(s.IOUnmap(mem))
	p.closeSockets(c, s)
	p.Close()
}

package socket_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// exampleAddr is the address of the examples' device.
var exampleAddr = loopback.Addr(10)

func TestMain(m *testing.M) {
	if err := os.Setenv("VERBENA_DEVICES", "vrb_socket="+exampleAddr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The server maps memory, and the client writes to it directly. A message sent afterwards shows that the data has
// arrived.
func ExampleSocket_IOMap() {
	l, err := socket.New(socket.Inet, socket.SockStream, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(l.Bind(netip.MustParseAddrPort(exampleAddr+":0")), l.Listen(0)); err != nil {
		log.Fatal(err)
	}
	at, _ := l.SockName()
	var server sync.WaitGroup
	server.Go(func() {
		s, _, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		memory := make([]byte, 1000)
		if _, err := s.IOMap(memory, socket.ProtWrite, 0); err != nil {
			log.Fatal(err)
		}
		_, _ = s.Send([]byte("mapped"), 0) // the client knows of the map when it gets this
		_, _ = s.Recv(make([]byte, 7), socket.MsgWaitAll)
		fmt.Printf("%s\n", memory[100:104])
	})

	c, err := socket.New(socket.Inet, socket.SockStream, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_ = c.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 1) // room for a map of the server's
	if err := c.Connect(at); err != nil {
		log.Fatal(err)
	}
	_, _ = c.Recv(make([]byte, 6), socket.MsgWaitAll)
	_, _ = c.IOWrite([]byte("data"), 100, 0)
	_, _ = c.Send([]byte("written"), 0)
	server.Wait()
	// Output: data
}

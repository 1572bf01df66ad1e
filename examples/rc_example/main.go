// Rc_example is the typical application of libibverbs' manual (RDMA_RC_example). Two programs exchange their addresses
// over TCP and connect a reliable QP. Then the server sends a message, and the client reads and writes the server's
// memory.
//
//	rc_example              the server
//	rc_example HOST         the client
//
// Options: -p TCP port, -d device, -i port of the device, -g GID index (by default the one that fits the peer's
// address).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	sendText  = "SEND operation"
	readText  = "RDMA read operation"
	writeText = "RDMA write operation"
	size      = 64 // of the message buffer
)

type config struct {
	server   string // empty: this program is the server
	tcpPort  int
	device   string
	port     uint8
	gidIndex int
}

func main() {
	c := config{port: 1}
	flag.IntVar(&c.tcpPort, "p", 19875, "TCP `port` for the exchange")
	flag.StringVar(&c.device, "d", "", "device `name` (default: the first)")
	flag.Func("i", "`port` of the device (default 1)", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 8)
		c.port = uint8(n)
		return err
	})
	c.port = 1
	flag.IntVar(&c.gidIndex, "g", -1, "GID `index` (default: chosen by the peer's address)")
	flag.Parse()
	if flag.NArg() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	c.server = flag.Arg(0)
	if err := run(c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rc_example:", err)
		os.Exit(1)
	}
}

// run is the whole program.
func run(c config, out io.Writer) error {
	conn, err := c.tcp()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &resources{config: c, conn: conn, json: json.NewDecoder(conn)}
	defer r.destroy()
	if err := r.create(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	return r.talk(out)
}

// tcp connects to the server, or waits for a client.
func (c config) tcp() (net.Conn, error) {
	if c.server != "" {
		conn, err := net.Dial("tcp", net.JoinHostPort(c.server, fmt.Sprint(c.tcpPort)))
		if err != nil {
			err = fmt.Errorf("%w; the server must run there, with the same -p: start it first", err)
		}
		return conn, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", c.tcpPort))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Accept()
}

// peerAddr returns the address of the other program's host.
func peerAddr(conn net.Conn) netip.Addr {
	return conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// talk runs one end's part after the QPs are connected.
func (r *resources) talk(out io.Writer) error {
	if r.server == "" {
		return r.serve(out)
	}
	// The server's SEND arrives in the receive that was posted before the QPs were connected.
	if err := r.wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Message is: '%s'\n", r.text())
	if err := r.sync(); err != nil { // the server has changed its buffer
		return err
	}
	if err := r.postSend(verbs.WRRDMARead); err != nil {
		return err
	}
	if err := r.wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Contents of server's buffer: '%s'\n", r.text())
	r.setText(writeText)
	fmt.Fprintf(out, "Now replacing it with: '%s'\n", writeText)
	if err := r.postSend(verbs.WRRDMAWrite); err != nil {
		return err
	}
	if err := r.wait(); err != nil {
		return err
	}
	return r.sync() // the server may read its buffer
}

// serve is the server's part: after its SEND it only waits. READ and WRITE do not involve its program.
func (r *resources) serve(out io.Writer) error {
	r.setText(sendText)
	if err := r.postSend(verbs.WRSend); err != nil {
		return err
	}
	if err := r.wait(); err != nil {
		return err
	}
	r.setText(readText)
	if err := r.sync(); err != nil {
		return err
	}
	if err := r.sync(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Contents of server buffer: '%s'\n", r.text())
	return nil
}

package rsocket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rsocket"
)

// exampleAddr is the address of the examples' device.
var exampleAddr = loopback.Addr(9)

func TestMain(m *testing.M) {
	if err := os.Setenv("VERBENA_DEVICES", "vrb_rsocket="+exampleAddr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// An echo server and a client.
func Example() {
	l, err := rsocket.Listen("tcp", exampleAddr+":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()

	c, err := rsocket.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello, RDMA")
	_ = c.(*rsocket.Conn).CloseWrite() // the server reads io.EOF, and ends its answer
	answer, err := io.ReadAll(c)
	fmt.Printf("%s, %v\n", answer, err)
	// Output: hello, RDMA, <nil>
}

// Package net/http needs only a listener and a dial function.
func ExampleListen() {
	l, err := rsocket.Listen("tcp", exampleAddr+":0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "you asked for %s", r.URL.Path)
	})}
	go func() { _ = server.Serve(l) }()

	transport := &http.Transport{DialContext: rsocket.DialContext}
	client := &http.Client{Transport: transport}
	resp, err := client.Get("http://" + l.Addr().String() + "/page")
	if err != nil {
		log.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Printf("%s: %s\n", resp.Status, body)
	transport.CloseIdleConnections()
	_ = server.Shutdown(context.Background())
	// Output: 200 OK: you asked for /page
}

// A Dialer sets the buffer sizes of its connections and a time limit. Here the limit has expired already.
func ExampleDialer_DialContext() {
	d := rsocket.Dialer{
		Options: rsocket.Options{SendBuf: 1 << 20, RecvBuf: 1 << 20, Polling: 100 * time.Microsecond},
		Timeout: time.Nanosecond,
	}
	_, err := d.DialContext(context.Background(), "tcp", exampleAddr+":7471")
	var ne net.Error
	fmt.Println(errors.As(err, &ne) && ne.Timeout())
	// Output: true
}

// A deadline ends a read that waits, as with package net.
func ExampleConn_SetReadDeadline() {
	l, err := rsocket.Listen("tcp", exampleAddr+":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := rsocket.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err = c.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded))
	// Output: true
}

// Datagrams keep their boundaries.
func ExampleListenPacket() {
	a, err := rsocket.ListenPacket("udp", exampleAddr+":0")
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := rsocket.Dial("udp", a.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	buf := make([]byte, rsocket.MaxDatagram4)
	for _, text := range []string{"first", "second"} {
		if _, err := b.Write([]byte(text)); err != nil {
			log.Fatal(err)
		}
		n, from, err := a.ReadFrom(buf)
		fmt.Printf("%s, %v\n", buf[:n], err)
		if _, err := a.WriteTo(buf[:n], from); err != nil {
			log.Fatal(err)
		}
		if _, err := b.Read(buf); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first, <nil>
	// second, <nil>
}

// Filetransfer sends files from one program to another and checks that they arrived complete. Read it as a pattern for
// programs that move data by RDMA: buffers, flow control, failures, shutdown.
//
//	filetransfer -d DIR           receives files into the folder DIR
//	filetransfer HOST FILE...     sends files to it
//
// The server gives each client a ring of registered buffers, the slots. The client WRITEs a file into them, one piece
// per slot. Each WRITE carries an immediate value, so that it completes a receive of the server; a WRITE without one
// causes no completion there. The server empties the slots and returns them to the client as credits, by SENDs.
//
//	client                                    server
//	                 connect ------------->
//	                 <------------- accept    private data: where the ring is, and its rkey
//	WRITE with immediate, slot 0 ---------->  begin: size and name
//	WRITE with immediate, slot 1 ---------->  data
//	...              <---------------- SEND   8 credits
//	WRITE with immediate, slot n ---------->  end: checksum
//	                 <---------------- SEND   credits; the file is stored
//	(the next file)
//	              disconnect ------------->
//
// wire.go has the message formats, sendqueue.go the posting of requests, client.go and server.go the two ends, and
// incoming.go the storing of a file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

func main() {
	dir := flag.String("d", "", "receive into this `folder`")
	port := flag.String("p", "7473", "`port` of the connection manager")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(),
			"usage: filetransfer [-p PORT] -d DIR\n       filetransfer [-p PORT] HOST FILE...\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case *dir != "" && flag.NArg() == 0:
		err = receiveFiles(ctx, net.JoinHostPort("", *port), *dir)
	case *dir == "" && flag.NArg() >= 2:
		err = sendFiles(ctx, net.JoinHostPort(flag.Arg(0), *port), flag.Args()[1:])
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "filetransfer:", err)
		os.Exit(1)
	}
}

// receiveFiles serves clients until the context ends.
func receiveFiles(ctx context.Context, address, dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	s := server{dir: dir, log: func(text string) { fmt.Println(text) }}
	err := s.run(ctx, address)
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C ends the server; that is no failure
	}
	return err
}

// sendFiles sends files over one connection, one after the other.
func sendFiles(ctx context.Context, address string, paths []string) error {
	c, err := connect(ctx, rdmacm.DefaultHost(), address)
	if err != nil {
		return err
	}
	defer c.close()
	for _, path := range paths {
		n, err := c.sendFile(ctx, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		fmt.Printf("%s: %d bytes sent and stored\n", path, n)
	}
	return c.disconnect(ctx)
}

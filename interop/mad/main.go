// Command mad exchanges management datagrams with another one, or with mad.py, which uses the C library libibumad, for
// the interop suite. A server answers requests of the class of performance counters until it is ended; with -remote it
// is a client, which sends some.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// calls is the number of requests of a client.
const calls = 50

func main() {
	device := flag.String("d", "", "the name of the device; empty means the first one")
	local := flag.String("local", "", "the client's own address")
	remote := flag.String("remote", "", "the server's address; empty means a server")
	flag.Parse()
	if err := run(*device, *local, *remote); err != nil {
		fmt.Fprintln(os.Stderr, "mad:", err)
		os.Exit(1)
	}
}

func run(device, local, remote string) error {
	vctx, err := verbs.Open(device)
	if err != nil {
		return err
	}
	defer vctx.Close()
	port, err := umad.Open(vctx.Device())
	if err != nil {
		return err
	}
	defer port.Close()
	if remote == "" {
		return serve(port)
	}
	var to umad.Address
	if to.Local, err = netip.ParseAddr(local); err != nil {
		return err
	}
	if to.Remote, err = netip.ParseAddr(remote); err != nil {
		return err
	}
	return ask(port, &to)
}

// serve answers requests with their data behind a word.
func serve(port *umad.Port) error {
	a, err := port.Register(umad.Registration{Class: umad.ClassPerf, ClassVersion: 1, Methods: []uint8{umad.MethodGet}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		r, err := a.Recv(context.Background())
		if err == nil {
			err = a.Reply(r, 0, append([]byte("answer: "), r.MAD.Data()[:8]...))
		}
		if err != nil {
			return err
		}
	}
}

// ask sends requests and checks the answers.
func ask(port *umad.Port, to *umad.Address) error {
	a, err := port.Register(umad.Registration{})
	if err != nil {
		return err
	}
	for i := range calls {
		data := fmt.Sprintf("call %03d", i)
		request := umad.New(umad.Header{Class: umad.ClassPerf, ClassVersion: 1, Method: umad.MethodGet, AttrID: 0x12,
			AttrMod: uint32(i)}, []byte(data))
		r, err := a.Call(context.Background(), to, request, time.Second, 5)
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
		h := r.MAD.Header()
		if got := string(r.MAD.Data()[:16]); got != "answer: "+data || h.AttrMod != uint32(i) || h.Status != 0 ||
			r.From.Remote != to.Remote || r.From.Local != to.Local {
			return fmt.Errorf("call %d: %q from %+v, header %+v", i, got, r.From, h)
		}
	}
	fmt.Println(calls, "answers")
	return nil
}

package rping

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// both runs a server and clients, each on its own host, in virtual time. None may fail.
func both(t *testing.T, server string, clients ...string) (serverOut string, clientOut []string) {
	t.Helper()
	serverOut, clientOut, errs := all(t, server, clients...)
	for i, err := range errs {
		if err != nil {
			t.Errorf("process %d, the server last: %v", i, err)
		}
	}
	return serverOut, clientOut
}

// all runs a server and clients, each on its own host, in virtual time. The last error is the server's.
func all(t *testing.T, server string, clients ...string) (serverOut string, clientOut []string, errs []error) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		ctx, stop := context.WithCancel(t.Context())
		side := func(name, args string) (out *bytes.Buffer, done chan error) {
			out, done = &bytes.Buffer{}, make(chan error, 1)
			dev, err := f.NewDevice(name)
			if err != nil {
				t.Fatal(err)
			}
			env := &tool.Env{Argv0: "rping", Stdout: out, Stderr: out}
			o, _, ok := parse(env, strings.Fields(args))
			if !ok {
				t.Fatal(out)
			}
			h := rdmacm.NewHost(dev)
			go func() {
				err := start(ctx, env, o, h)
				if closed := h.Close(); err == nil {
					err = closed
				}
				done <- err
			}()
			return out, done
		}
		sOut, sDone := side("server", server)
		time.Sleep(time.Second)
		outs, dones := make([]*bytes.Buffer, len(clients)), make([]chan error, len(clients))
		for i, args := range clients {
			outs[i], dones[i] = side(fmt.Sprintf("client%d", i), args)
		}
		for i := range clients {
			errs = append(errs, <-dones[i])
			clientOut = append(clientOut, outs[i].String())
		}
		if strings.Contains(server, "-P") {
			stop()
		}
		errs = append(errs, <-sDone)
		stop()
		serverOut = sOut.String()
	})
	return serverOut, clientOut, errs
}

// The client prints the reason of the refusal too, since the server may run on another host.
func TestRefusedSize(t *testing.T) {
	_, _, errs := all(t, "-s -S 64", "-c -a 198.18.0.1 -C 1 -S 1000")
	if want := "before the first answer: a server refuses more bytes than its -S, here 1000"; errs[0] == nil ||
		!strings.Contains(errs[0].Error(), want) {
		t.Errorf("the client ends with %v", errs[0])
	}
	if want := "the client offers 1000 bytes: must be at most 64"; errs[1] == nil ||
		!strings.Contains(errs[1].Error(), want) {
		t.Errorf("the server ends with %v", errs[1])
	}
}

func TestPing(t *testing.T) {
	s, c := both(t, "-s -v -a 198.18.0.1", "-c -a 198.18.0.1 -C 2 -v -V -S 40")
	// As in C, the client may end before the event of its own disconnect arrives.
	if want := "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ\n" +
		"ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\n"; strings.TrimSuffix(c[0],
		"client DISCONNECT EVENT...\n") != want {
		t.Errorf("the client prints\n%swant\n%s", c[0], want)
	}
	if want := "server ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ\n" +
		"server ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\n" +
		"server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n"; s != want {
		t.Errorf("the server prints\n%swant\n%s", s, want)
	}
}

func TestVariants(t *testing.T) {
	for _, c := range []struct{ server, client string }{
		{"-s", "-c -a 198.18.0.1 -C 200 -V"}, {"-s -S 65535", "-c -a 198.18.0.1 -C 5 -V -S 65535"},
		{"-s -q", "-c -a 198.18.0.1 -C 3 -V"},
		{"-s", "-c -a 198.18.0.1 -C 3 -V -q"}, {"-s -p 9999 -t 32", "-c -p 9999 -I 198.18.0.2 -a 198.18.0.1 -C 1 -V"},
	} {
		t.Run(c.server+" "+c.client, func(t *testing.T) { both(t, c.server, c.client) })
	}
}

// A persistent server serves many clients concurrently.
func TestPersistent(t *testing.T) {
	clients := make([]string, 8)
	for i := range clients {
		clients[i] = "-c -a 198.18.0.1 -C 20 -V -S 1000"
	}
	s, _ := both(t, "-s -P -S 1000", clients...)
	if n := strings.Count(s, "server DISCONNECT EVENT..."); n != len(clients) {
		t.Errorf("%d clients disconnected, want %d\n%s", n, len(clients), s)
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range []string{"", "-s -c", "-c", "-s -S 26", "-s -S 65536", "-s -C -1", "-s x", "-s -a 1.2.3.4.5"} {
		var out bytes.Buffer
		if _, status, ok := parse(&tool.Env{Argv0: "rping", Stdout: &out, Stderr: &out}, strings.Fields(args)); ok ||
			status != 1 || out.Len() == 0 {
			t.Errorf("%q: ok %v, status %d, %s", args, ok, status, &out)
		}
	}
}

// If the peer process dies while nothing is outstanding, no event follows; the flushed requests carry the
// cause.
func TestFlushedByAFailure(t *testing.T) {
	died := &verbs.WCError{Status: verbs.WCRetryExcErr}
	for _, c := range []struct {
		wc   verbs.WC
		want bool
	}{
		{verbs.WC{Status: verbs.WCWRFlushErr}, true},
		{verbs.WC{Status: verbs.WCWRFlushErr, Cause: &verbs.WCError{Status: verbs.WCWRFlushErr}}, true},
		{verbs.WC{Status: verbs.WCWRFlushErr, Cause: &verbs.WCError{Status: verbs.WCWRFlushErr, First: died}}, false},
		{verbs.WC{Status: verbs.WCRetryExcErr, Cause: died}, false},
		{verbs.WC{}, false},
	} {
		if got := endsConnection(&c.wc); got != c.want {
			t.Errorf("%v: %v", c.wc.Err(), got)
		}
	}
}

package control

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/untrusted"
	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
)

// giveSockets sends sockets whose close waits for a minute.
func giveSockets(t *testing.T, c net.Conn) {
	t.Helper()
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	release, err := lingering.Give(int(f.Fd()), 2, time.Minute)
	t.Cleanup(release)
	if err != nil {
		t.Logf("the other end has closed the connection: %v", err)
	}
}

// A process that sends a program sockets instead of questions delays neither answers to others nor the program's end.
func TestProgramIsSentSockets(t *testing.T) {
	lingering.OldKernel(t, &untrusted.Refuse)
	patient(t)
	s := serve(t, &program{})
	for range mostAskers + 4 { // the last ones are refused
		giveSockets(t, dial(t, s.Name, "x"))
	}
	lingering.Limited(t, "an answer", func() {
		for {
			if _, err := report(s.Name, AskReport, new(budgets)); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond) // there are still too many
		}
	})
	giveSockets(t, dial(t, s.Name, "x"))
	lingering.Limited(t, "the end", s.Close)
}

// A program that answers with sockets delays no tool.
func TestToolIsSentSockets(t *testing.T) {
	lingering.OldKernel(t, &untrusted.Refuse)
	name := Name(os.Geteuid(), 1)
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	defer func() {
		l.Close()
		<-answered
	}()
	go func() {
		defer close(answered)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n') // a tool that finds the connection closed has nothing to read
			giveSockets(t, c)
			fmt.Fprint(c, "{}\n")
			go c.Close() // which waits if the tool has not closed what it was sent
		}
	}()
	lingering.Limited(t, "the report", func() { _, _ = report(name, AskReport, new(budgets)) })
	lingering.Limited(t, "a capture", func() {
		s, err := Capture(name, "vrb_x", "")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Read(make([]byte, 1))
		_ = s.Close()
	})
}

// Processes of one user that do not introduce themselves to a capture of root leave places for those of others.
func TestCallersOfOneUser(t *testing.T) {
	c := callers{of: make(map[uint32]int)}
	var last func()
	n := 0
	for ; n < introductions; n++ {
		end, ok := c.begin(1)
		if !ok {
			break
		}
		last = end
	}
	end, ok := c.begin(2)
	if n != introductionsOfUser || !ok {
		t.Fatalf("%d places of one user, another user: %v", n, ok)
	}
	end()
	last()
	if _, ok := c.begin(1); !ok {
		t.Error("the place of a caller that has introduced itself is not free")
	}
	if c.of[2] != 0 || len(c.of) != 1 {
		t.Errorf("users: %v", c.of)
	}
}

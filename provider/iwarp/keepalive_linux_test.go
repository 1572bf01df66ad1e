package iwarp_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Connections that a listening ID accepts have its keep-alive: TCP runs the timer.
func TestAcceptedConnectionsInheritKeepAlive(t *testing.T) {
	o := &rdmacm.Options{Host: newHost(t), KeepAlive: time.Hour}
	ctx, cancel := limit()
	defer cancel()
	l, err := rdmacm.Listen(ctx, "127.0.0.1:0", o)
	must(t, err)
	got := make(chan *rdmacm.ID, 1)
	go func() {
		defer close(got)
		id, err := l.Accept(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		got <- id
	}()
	c, err := rdmacm.Dial(ctx, l.Addr().String(), o)
	must(t, err)
	s := <-got
	for who, id := range map[string]*rdmacm.ID{"client": c, "server": s} {
		if id != nil && !keepsAlive(t, id) {
			t.Errorf("TCP has no keep-alive at the %s", who)
		}
	}
	must(t, c.Close())
	if s != nil {
		must(t, s.Close())
	}
	must(t, l.Close())
}

// keepsAlive reports whether TCP's timer of keep-alive runs: it has the number 2. For a moment another one may run.
func keepsAlive(t *testing.T, id *rdmacm.ID) bool {
	t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`: 0100007F:%04X 0100007F:%04X 01 \S+ 02:`, id.SrcPort(), id.DstPort()))
	for range 2000 {
		list, err := os.ReadFile("/proc/net/tcp")
		must(t, err)
		if line.Match(list) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestPrepare posts receives on both sides before they are connected: a message that the other side sends at once
// finds one.
func TestPrepare(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, _ := udpHost(t, 8)
	b, addr := udpHost(t, 9)
	buf, other := make([]byte, 8), make([]byte, 8)
	var before [2]verbs.QPState
	prepare := func(i int, b []byte) func(*rdmacm.ID) error {
		return func(id *rdmacm.ID) error {
			a, _, err := id.QP().Query(verbs.QPAttrState)
			if before[i] = a.QPState; err != nil {
				return err
			}
			mr, err := id.RegMsgs(b)
			if err != nil {
				return err
			}
			return id.PostRecv(7, b, mr)
		}
	}
	l, err := rdmacm.Listen(ctx, ":0", &rdmacm.Options{Host: b, Prepare: prepare(0, buf)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := at(addr, l.Addr().Port()).String()
	accepted := make(chan *rdmacm.ID, 1)
	go func() {
		id, err := l.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- id
	}()
	active, err := rdmacm.Dial(ctx, to, &rdmacm.Options{Host: a, Prepare: prepare(1, other)})
	if err != nil {
		t.Fatal(err)
	}
	defer active.Close()
	passive := <-accepted
	if passive == nil {
		t.FailNow()
	}
	defer passive.Close()
	for _, e := range []struct{ from, to *rdmacm.ID }{{active, passive}, {passive, active}} {
		if err := e.from.PostSend(1, []byte("verbena!"), nil, verbs.SendInline|verbs.SendSignaled); err != nil {
			t.Fatal(err)
		}
		wc, err := e.to.GetRecvComp(ctx)
		if err != nil || wc.WRID != 7 || wc.Err() != nil {
			t.Fatalf("%v %v", wc, err)
		}
	}
	if !bytes.Equal(buf, other) || string(buf) != "verbena!" {
		t.Errorf("%q and %q", buf, other)
	}
	if before != [2]verbs.QPState{verbs.QPSInit, verbs.QPSInit} {
		t.Errorf("states %v: must be INIT", before)
	}
}

// TestPrepareFails gives errors on each side: the connection is not made.
func TestPrepareFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, _ := udpHost(t, 150) // plain sockets of another test's hosts may still be about to be closed
	b, addr := udpHost(t, 151)
	unwilling := errors.New("unwilling")
	fail := func(*rdmacm.ID) error { return unwilling }
	l, err := rdmacm.Listen(ctx, ":0", &rdmacm.Options{Host: b, Prepare: fail})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := at(addr, l.Addr().Port()).String()
	if _, err := rdmacm.Dial(ctx, to, &rdmacm.Options{Host: a, Prepare: fail}); !errors.Is(err, unwilling) {
		t.Errorf("Dial: %v", err)
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept(ctx)
		accepted <- err
	}()
	_, err = rdmacm.Dial(ctx, to, &rdmacm.Options{Host: a})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial: %v, want ECONNREFUSED", err)
	}
	if err := <-accepted; !errors.Is(err, unwilling) {
		t.Errorf("Accept: %v", err)
	}
}

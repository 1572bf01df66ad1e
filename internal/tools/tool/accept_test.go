package tool

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a listener whose Accept returns errs, then a connection.
type failing struct {
	net.Listener
	errs []error
	at   []time.Time
}

func (f *failing) Accept() (net.Conn, error) {
	f.at = append(f.at, time.Now())
	if len(f.errs) == 0 {
		return new(net.TCPConn), nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	if err == nil {
		return new(net.TCPConn), nil
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
}

func TestAcceptGoesOnWithoutDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{errs: []error{
			syscall.EMFILE, syscall.ENFILE, syscall.EMFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
			syscall.EMFILE, syscall.EMFILE, syscall.EMFILE, syscall.EMFILE, nil, syscall.EMFILE,
		}}
		var said []error
		for range 2 {
			c, err := Accept(f, func(err error) { said = append(said, err) })
			if c == nil || err != nil {
				t.Fatal(err)
			}
		}
		if len(said) != 2 || !errors.Is(said[0], syscall.EMFILE) {
			t.Errorf("it said %v", said)
		}
		if p := f.at[1].Sub(f.at[0]); p != shortPause {
			t.Errorf("the first pause is %v", p)
		}
		if p := f.at[10].Sub(f.at[9]); p != longPause {
			t.Errorf("the last pause is %v", p)
		}
	})
}

func TestAcceptEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Accept(l, func(err error) { t.Error(err) }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	f := &failing{errs: []error{syscall.EINVAL}}
	if _, err := Accept(f, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v", err)
	}
}

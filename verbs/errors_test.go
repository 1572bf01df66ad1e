package verbs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

func TestErrorText(t *testing.T) {
	tests := map[string]error{
		"reg_mr: too long (EINVAL)":      newError("reg_mr", "", EINVAL, "too %s", "long"),
		"reg_mr: too long (EINVAL) [PD]": newError("reg_mr", "PD", EINVAL, "too long"),
		"reg_mr: too long (EINVAL); shorten it [PD]": &Error{Op: "reg_mr", Obj: "PD", Errno: EINVAL,
			Detail: "too long", Hint: "shorten it"},
		"poll_cq: use of a closed object (EINVAL) [CQ]": errClosed("poll_cq", "CQ"),
		"reg_mr: cannot allocate memory (ENOMEM) [PD]":  driverError("reg_mr", "PD", ENOMEM),
		"reg_mr: inner: x (EBUSY) [PD]": driverError("reg_mr", "PD",
			newError("inner", "", EBUSY, "x")),
		"reg_mr: EOF (EIO)": driverError("reg_mr", "", io.EOF),
		"create_qp: too many open files (EMFILE); " + descriptorHint(fdset.Limit()): driverError("create_qp", "",
			syscall.EMFILE),
		"create_qp: the leader's ulimit -n is too low: too many open files (EMFILE)": driverError("create_qp", "",
			fmt.Errorf("the leader's ulimit -n is too low: %w", syscall.EMFILE)),
		"request 3: post_send: x (ENOMEM)": &PostError{Index: 3,
			Err: newError("post_send", "", ENOMEM, "x")},
		"rereg_mr: x (EINVAL) [ERR_INPUT]": &ReregError{Code: ReregErrInput,
			Err: newError("rereg_mr", "", EINVAL, "x")},
		"verbs: the device does not support this (EOPNOTSUPP)":           ErrNotSupported,
		"open: verbs: the device does not support this (EOPNOTSUPP) [d]": driverError("open", "d", ErrNotSupported),
	}
	for want, err := range tests {
		if err.Error() != want {
			t.Errorf("got  %q\nwant %q", err, want)
		}
	}
}

// The hint names the limit, and one that is larger.
func TestDescriptorHint(t *testing.T) {
	const raise = "raise the limit of descriptors: ulimit -n "
	for have, want := range map[int]string{
		0:    raise + "1024, or LimitNOFILE= of systemd",
		40:   "the process may have 40 descriptors; " + raise + "1024, or LimitNOFILE= of systemd",
		1024: "the process may have 1024 descriptors; " + raise + "4096, or LimitNOFILE= of systemd",
	} {
		if got := descriptorHint(have); got != want {
			t.Errorf("%d: %q, want %q", have, got, want)
		}
	}
}

func TestErrorIs(t *testing.T) {
	if driverError("x", "y", nil) != nil {
		t.Error("nil became an error")
	}
	wrapped := fmt.Errorf("more: %w", &PostError{Err: driverError("post_send", "QP",
		fmt.Errorf("why: %w", syscall.EFAULT))})
	if !errors.Is(wrapped, syscall.EFAULT) || errors.Is(wrapped, EINVAL) {
		t.Error(wrapped)
	}
	for _, target := range []error{ErrClosed, os.ErrClosed, net.ErrClosed, EINVAL} {
		if !errors.Is(errClosed("x", ""), target) || !errors.Is(ErrClosed, target) {
			t.Errorf("ErrClosed is not %v", target)
		}
	}
	if errors.Is(ErrClosed, EBUSY) || errors.Is(newError("x", "", EINVAL, ""), ErrClosed) {
		t.Error("ErrClosed matches an unrelated error")
	}
}

func TestD_23_UnsupportedIsOneError(t *testing.T) {
	for _, err := range []error{ErrNotSupported, newError("x", "", ENOSYS, ""), driverError("x", "", EOPNOTSUPP),
		driverError("x", "", ErrNotSupported)} {
		for _, target := range []error{ENOSYS, EOPNOTSUPP, syscall.ENOTSUP, errors.ErrUnsupported, ErrNotSupported} {
			if !errors.Is(err, target) {
				t.Errorf("%v is not %v", err, target)
			}
		}
		if errors.Is(err, EINVAL) {
			t.Errorf("%v is EINVAL", err)
		}
	}
	if errors.Is(newError("x", "", EINVAL, ""), ErrNotSupported) {
		t.Error("EINVAL is ErrNotSupported")
	}
}

// TestUnsupportedDrivers calls every method of DriverUnsupported that returns an error.
func TestUnsupportedDrivers(t *testing.T) {
	v := reflect.ValueOf(DriverUnsupported{})
	for i := range v.NumMethod() {
		m := v.Method(i)
		if m.Type().Out(m.Type().NumOut()-1).Kind() != reflect.Interface {
			continue
		}
		args := make([]reflect.Value, m.Type().NumIn())
		for j := range args {
			args[j] = reflect.Zero(m.Type().In(j))
		}
		out := m.Call(args)
		if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, EOPNOTSUPP) {
			t.Errorf("%s: %v", v.Type().Method(i).Name, err)
		}
	}
}

// The responder refuses the first packet that is longer than its own path MTU.
func TestHintOfRefusedRequestNamesPathMTU(t *testing.T) {
	if text := (&WCError{Status: WCRemInvReqErr, QPN: 0x11}).Error(); !strings.Contains(text, "same path MTU") {
		t.Error(text)
	}
}

// An SRQ of a device without numbers has the number 0.
func TestUnsupportedNumber(t *testing.T) {
	if n := (DriverUnsupported{}).SRQN(); n != 0 {
		t.Errorf("%d", n)
	}
}

func TestV_WC_05_Err(t *testing.T) {
	if err := (&WC{}).Err(); err != nil {
		t.Errorf("success is %v", err)
	}
	for status := WCLocLenErr; status <= WCTMRndvIncomplete; status++ {
		err := (&WC{Status: status, QPNum: 0x11}).Err()
		var e *WCError
		if !errors.As(err, &e) || e.Status != status || e.QPN != 0x11 || !errors.Is(err, status) || errors.Is(err,
			WCStatus(99)) {
			t.Errorf("%v: %v", status, err)
		}
		if text := err.Error(); !strings.Contains(text, status.Name()) || !strings.Contains(text, status.String()) {
			t.Errorf("%v: %q", status, text)
		}
	}
}

func TestWCErrorText(t *testing.T) {
	first := &WCError{
		Status: WCRetryExcErr, QPN: 0x11, DestQPN: 0x12, Peer: "192.0.2.2", Reason: "no acknowledgement", LastSent: 0x105,
		LastAck: 0x101,
		Retries: 7, Elapsed: 536 * time.Millisecond,
	}
	want := "work completion RETRY_EXC_ERR (transport retry counter exceeded) of QP 0x000011 with 192.0.2.2 QP " +
		"0x000012: " +
		"no acknowledgement; " +
		"sent 8 times in 536ms, last PSN 0x000105, acknowledged 0x000101, nothing ever came back; " +
		"is the peer up, its QP in RTR with our QPN and GID, and UDP port 4791 open between the two?"
	if first.Error() != want {
		t.Errorf("got  %q\nwant %q", first, want)
	}
	if once := (&WCError{Status: WCRemOpErr, Elapsed: time.Millisecond}).Error(); !strings.Contains(once,
		"; sent once in 1ms") {
		t.Errorf("%q", once)
	}
	first.Heard = true
	if s := first.Error(); strings.Contains(s, "nothing ever came back") || !strings.Contains(s, "stopped answering") {
		t.Errorf("%q", s)
	}
	flushed := (&WC{Status: WCWRFlushErr, Cause: &WCError{Status: WCWRFlushErr, QPN: 0x11, First: first}}).Err()
	if !errors.Is(flushed, WCWRFlushErr) || !errors.Is(flushed, WCRetryExcErr) || errors.Is(flushed, WCRemAccessErr) {
		t.Errorf("%v", flushed)
	}
	if !strings.Contains(flushed.Error(), "; first failure: work completion RETRY_EXC_ERR") {
		t.Errorf("%q", flushed)
	}
	if disconnected := (&WCError{Status: WCWRFlushErr, QPN: 1,
		Reason: "this side called Disconnect"}).Error(); disconnected !=
		"work completion WR_FLUSH_ERR (Work Request Flushed Error) of QP 0x000001: this side called Disconnect" {
		t.Errorf("%q", disconnected)
	}
	alone := &WCError{Status: WCWRFlushErr, QPN: 1}
	if !strings.Contains(alone.Error(), "the QP was moved to ERR") {
		t.Errorf("%q", alone)
	}
}

// If this host refused to send a packet, the error has the reason and an action, and does not ask about the peer.
func TestWCErrorOfRefusedPacket(t *testing.T) {
	e := WCError{Status: WCRetryExcErr, QPN: 0x11, Peer: "192.0.2.2", Reason: "no acknowledgement", Retries: 7,
		Elapsed: time.Second, RefusedLen: 4140}
	for _, c := range []struct {
		errno Errno
		want  string
	}{
		{syscall.EMSGSIZE,
			"this host would not send a packet of 4140 bytes: message too long (EMSGSIZE); " +
				"the MTU of the interface or the route is too small"},
		{syscall.EPERM, "(EPERM); does a firewall of this host forbid it?"},
		{syscall.ENETUNREACH, "(ENETUNREACH); there is no route to the peer"},
		{syscall.EADDRNOTAVAIL, "(EADDRNOTAVAIL); this host no longer has the QP's address"},
		{syscall.EDOM, "this host would not send a packet of 4140 bytes: numerical argument out of domain"},
	} {
		e.Refused = c.errno
		wc := WC{Status: WCRetryExcErr, Cause: &e}
		err := wc.Err()
		if !errors.Is(err, c.errno) || !errors.Is(err, WCRetryExcErr) || errors.Is(err, EINVAL) {
			t.Errorf("%v", err)
		}
		if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "is the peer up") {
			t.Errorf("%q does not have %q", text, c.want)
		}
		flushed := &WCError{Status: WCWRFlushErr, First: &e}
		if !errors.Is(flushed, c.errno) {
			t.Errorf("%v", flushed)
		}
	}
}

// The error of a packet that is too long for the route names the route's MTU.
func TestWCErrorNamesTheMTU(t *testing.T) {
	e := WCError{Status: WCRetryExcErr, QPN: 0x11, Peer: "192.0.2.2", Reason: "no acknowledgement", Retries: 7,
		Refused: syscall.EMSGSIZE, RefusedLen: 4140, RouteMTU: 1400}
	if s := e.Error(); !strings.Contains(s, "the MTU of the route to the peer is 1400: connect with a smaller path MTU") {
		t.Errorf("%q", s)
	}
	for mtu, known := range map[int]bool{0: false, 1: true, 4139: true, 4140: false, 9000: false} {
		e.RouteMTU = mtu
		if s := e.Error(); strings.Contains(s, "the MTU of the route to the peer is") != known {
			t.Errorf("MTU %d: %q", mtu, s)
		}
	}
	e.Refused, e.Payload = 0, 4096 // a black hole
	for _, heard := range []bool{true, false} {
		e.Heard = heard
		if s := e.Error(); !strings.Contains(s, "too small an MTU for packets of 4176 bytes") {
			t.Errorf("%q", s)
		}
	}
	for payload, long := range map[int]bool{0: false, 1024: false, 1025: true} {
		e.Payload = payload
		if s := e.Error(); strings.Contains(s, "too small an MTU") != long {
			t.Errorf("%d bytes: %q", payload, s)
		}
	}
}

// If the peer's process has ended, the error does not ask whether the peer is up.
func TestWCErrorOfEndedPeer(t *testing.T) {
	for _, heard := range []bool{true, false} {
		e := &WCError{Status: WCRetryExcErr, QPN: 1, Peer: "127.0.0.1", Reason: "the peer's process has ended",
			Heard: heard, PeerEnded: true}
		if s := e.Error(); !strings.Contains(s, "look at its output") || strings.Contains(s, "is the peer up") ||
			strings.Contains(s, "stopped answering") {
			t.Errorf("%q", s)
		}
	}
}

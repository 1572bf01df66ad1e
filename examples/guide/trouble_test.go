package main

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A testNet is two connected sides on a fabric in virtual time.
type testNet struct {
	*rdmatest.Fabric
	a, b side
}

// first returns the error of the first completion of a side.
func (s testNet) first(of side) error {
	var wcs [1]verbs.WC
	s.Run(func() bool { n, _ := of.cq.Poll(wcs[:]); return n == 1 }, 10*time.Minute)
	return wcs[0].Err()
}

// send posts a SEND of n bytes on a side.
func send(of side, n int) error {
	return of.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{of.mr.SGE(0, n)}})
}

func (s testNet) cut() { s.Cut(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")) }

// mistakes cause the errors that docs/troubleshooting.md shows.
var mistakes = []struct {
	name string
	make func(s testNet) error
}{
	{"the peer never answers", func(s testNet) error {
		s.cut()
		return errors.Join(send(s.a, 8), s.first(s.a))
	}},
	{"the peer stops answering", func(s testNet) error {
		receive(s.b, 64)
		if err := errors.Join(send(s.a, 8), s.first(s.a)); err != nil {
			return err
		}
		s.cut()
		return errors.Join(send(s.a, 8), s.first(s.a))
	}},
	{"no receive posted", func(s testNet) error {
		check(s.a.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		check(s.b.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		a, b := must(s.a.qp.LocalInfo()), must(s.b.qp.LocalInfo())
		check(s.a.qp.Connect(b, &verbs.ConnectOptions{RNRRetry: 3}))
		check(s.b.qp.Connect(a, nil))
		return errors.Join(send(s.a, 8), s.first(s.a))
	}},
	{"a message longer than the receive", func(s testNet) error {
		receive(s.b, 8)
		return errors.Join(send(s.a, 16), s.first(s.a))
	}},
	{"a receive shorter than the message", func(s testNet) error {
		receive(s.b, 8)
		return errors.Join(send(s.a, 16), s.first(s.b))
	}},
	{"a region without the right", func(s testNet) error {
		return errors.Join(s.a.qp.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{s.a.mr.SGE(0, 8)}, RemoteAddr: s.b.mr.Addr(), RKey: s.b.mr.RKey(),
		}), s.first(s.a))
	}},
	{"a wrong lkey", func(s testNet) error {
		sge := s.a.mr.SGE(0, 8)
		sge.LKey++
		return errors.Join(s.a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{sge}}), s.first(s.a))
	}},
	{"flushed", func(s testNet) error {
		s.cut()
		if err := errors.Join(send(s.a, 8), send(s.a, 8), s.first(s.a)); !errors.Is(err, verbs.WCRetryExcErr) {
			return err
		}
		return s.first(s.a)
	}},
	{"attributes are missing", func(s testNet) error {
		check(s.a.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		return s.a.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort)
	}},
	{"nothing is signaled", func(s testNet) error {
		for {
			if err := s.a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{s.a.mr.SGE(0, 8)}}); err != nil {
				return err
			}
		}
	}},
	{"an object in use", func(s testNet) error { return s.a.qp.PD().Close() }},
}

// receive posts a receive of n bytes.
func receive(of side, n int) {
	check(of.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{of.mr.SGE(0, n)}}))
}

func TestTroubleshootingShowsTheseErrors(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	page := plain(string(text))
	for _, m := range mistakes {
		f := rdmatest.New(rdmatest.Config{})
		a, b := newPair(t, f)
		switch err := m.make(testNet{f, a, b}); {
		case err == nil:
			t.Errorf("%s: no error", m.name)
		case !strings.Contains(page, plain(err.Error())):
			t.Errorf("%s: the page does not have the error:\n%v", m.name, err)
		}
	}
}

var number = regexp.MustCompile(`0x[0-9a-f]+`)

// plain returns a text as one line, without the numbers that differ in each run.
func plain(s string) string {
	return number.ReplaceAllString(strings.Join(strings.Fields(s), " "), "0x")
}

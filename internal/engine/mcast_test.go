package engine

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
)

// groupLink counts the joins of groups. A join or leave of the group slow waits: see pass.
type groupLink struct {
	link.Link
	slow       netip.Addr
	begun, end chan struct{}
	joins      chan int // has the sum of all joins
}

func newGroupLink(slow netip.Addr) *groupLink {
	l := &groupLink{slow: slow, begun: make(chan struct{}), end: make(chan struct{}), joins: make(chan int, 1)}
	l.joins <- 0
	return l
}

func (l *groupLink) Join(group netip.Addr) error  { return l.change(group, 1) }
func (l *groupLink) Leave(group netip.Addr) error { return l.change(group, -1) }

func (l *groupLink) change(group netip.Addr, by int) error {
	if group == l.slow {
		l.begun <- struct{}{}
		<-l.end
	}
	l.joins <- <-l.joins + by
	return nil
}

// TestOtherGroupsDoNotWait checks that QPs attach to a group, and detach from it, while an attach to another group, and
// a detach from it, wait in the link: at a shared address the link may wait for a process that is stopped.
func TestOtherGroupsDoNotWait(t *testing.T) {
	slow, other := netip.MustParseAddr("ff02::1:1"), netip.MustParseAddr("239.1.1.1")
	var table mcastTable
	table.init(2, 2)
	l := newGroupLink(slow)
	done := make(chan error)
	for _, call := range []func() error{
		func() error { return table.attach(l, slow, member{qpn: 1}) },
		func() error { return table.detach(l, slow, 1) },
	} {
		go func() { done <- call() }()
		<-l.begun
		if err := table.attach(l, other, member{qpn: 2}); err != nil {
			t.Error(err)
		}
		if err := table.detach(l, other, 2); err != nil {
			t.Error(err)
		}
		close(l.end)
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.end = make(chan struct{})
	}
	if n := <-l.joins; n != 0 || table.count != 0 {
		t.Errorf("%d joins and %d groups are left", n, table.count)
	}
}

// TestAttachesThatMeet checks that of two attaches of one QP at the same time one counts, and that an attach which
// finds the last place taken after the join leaves the group again.
func TestAttachesThatMeet(t *testing.T) {
	group := netip.MustParseAddr("ff02::1:1")
	for _, c := range []struct {
		name   string
		qpns   [2]uint32
		maxQPs int
		wants  error
	}{
		{"one QP", [2]uint32{1, 1}, 2, nil},
		{"the last place", [2]uint32{1, 2}, 1, ErrMcastFull},
	} {
		t.Run(c.name, func(t *testing.T) {
			var table mcastTable
			table.init(1, c.maxQPs)
			l := newGroupLink(group)
			done := make(chan error)
			for _, qpn := range c.qpns {
				go func() { done <- table.attach(l, group, member{qpn: qpn}) }()
			}
			<-l.begun
			<-l.begun // both have found a place
			l.end <- struct{}{}
			if err := <-done; err != nil {
				t.Error(err)
			}
			l.end <- struct{}{}
			<-l.begun // it leaves
			l.end <- struct{}{}
			if err := <-done; err != c.wants {
				t.Errorf("the second attach: %v, want %v", err, c.wants)
			}
			if n := <-l.joins; n != 1 || table.count != 1 || len(table.members(group)) != 1 {
				t.Errorf("%d joins, %d groups, members %v", n, table.count, table.members(group))
			}
		})
	}
}

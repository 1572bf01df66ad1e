package host

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// polledConn counts the looks at a connection.
type polledConn struct {
	*net.UnixConn
	syscall.RawConn
	looks atomic.Int32
}

func (c *polledConn) SyscallConn() (_ syscall.RawConn, err error) {
	c.RawConn, err = c.UnixConn.SyscallConn()
	return c, err
}

func (c *polledConn) Control(f func(fd uintptr)) error {
	c.looks.Add(1)
	return c.RawConn.Control(f)
}

func (c *polledConn) Read(f func(fd uintptr) bool) error  { return c.RawConn.Read(f) }
func (c *polledConn) Write(f func(fd uintptr) bool) error { return c.RawConn.Write(f) }

// TestMembersThatDoNotReadCostLittle checks that verbena serve looks rarely at a member that does not read its replies,
// of which a user may have many, and at once at one that does soon.
func TestMembersThatDoNotReadCostLittle(t *testing.T) {
	member, leader := connPair(t)
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(Key{}, &Config{}, &openStore{}, nil, nil)
		if _, err := leader.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		c := &polledConn{UnixConn: leader}
		read := make(chan time.Time, 1)
		begin := time.Now()
		l.done.Go(func() { l.awaitRead(c); read <- time.Now() })
		const long = 20 * time.Second
		time.Sleep(long)
		if n := c.looks.Load(); n > int32(long/longPause)+20 {
			t.Errorf("%d looks in %v", n, long)
		}
		if _, err := member.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if late := (<-read).Sub(begin) - long; late > longPause {
			t.Errorf("it has read, which was noticed after %v", late)
		}
		l.stop()
	})
}

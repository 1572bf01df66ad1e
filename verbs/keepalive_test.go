package verbs

import (
	"testing"
	"time"
)

func TestSetKeepAlive(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSInit)
	refused(t, qp.SetKeepAlive(time.Second), EOPNOTSUPP, "set_keepalive")
	with := &keepQP{fakeQP: drv}
	qp.drv = with
	ok(t, qp.SetKeepAlive(time.Millisecond))
	if with.idle != time.Millisecond {
		t.Errorf("%v", with.idle)
	}
	for _, bad := range []time.Duration{-1, 1, time.Millisecond - 1} {
		refused(t, qp.SetKeepAlive(bad), EINVAL, "at least 1ms")
	}
	ok(t, qp.SetKeepAlive(0))
	if with.idle != 0 {
		t.Errorf("%v", with.idle)
	}
	ok(t, qp.Close())
	refused(t, qp.SetKeepAlive(0), EINVAL, "closed")
	ud, _ := newQPIn(t, QPTypeUD, QPSInit)
	refused(t, ud.SetKeepAlive(time.Second), EINVAL, "RC or XRC_SEND")
}

type keepQP struct {
	*fakeQP
	idle time.Duration
}

func (q *keepQP) SetKeepAlive(idle time.Duration) error { q.idle = idle; return nil }

package soft_test

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/link/packet"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestFramesOfAnInterfaceThatComesBack: a QP of a new context has the frames of the interface that has come back, while
// a QP of the old one is open.
func TestFramesOfAnInterfaceThatComesBack(t *testing.T) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	must(t, os.Setenv("VERBENA_DEVICES", "back"))
	add := func() {
		for _, line := range []string{"link add back type veth peer name other", "link set other up",
			"addr add 192.0.2.1/24 dev back", "link set back up"} {
			apart.IP(t, line)
		}
		soft.WaitUp(t, "other")
		soft.WaitUp(t, "back")
	}
	open := func() *verbs.Context { return get(verbs.Open("vrb_back"))(t) }
	frame := eth([]byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 2}, 0x88b5, bytes.Repeat([]byte{7}, 46))
	check := func(s *station) {
		t.Helper()
		rule := s.rule(verbs.FlowAttr{})
		defer func() { must(t, rule.Close()) }()
		s.post(s.qp, 0, 32)
		far := get(packet.Open("other"))(t)
		defer far.Close()
		must(t, far.Send(frame))
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if c := s.next(); c != nil && bytes.Equal(s.buf[int(c.WRID)*slotLen:][:c.ByteLen], frame) {
				return
			}
		}
		t.Error("the frame does not arrive")
	}
	add()
	must(t, os.Setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1")) // the old objects are closed in the end
	old := open()
	check(stationOf(t, old, nil))
	apart.IP(t, "link del back")
	for {
		if _, err := old.QueryPort(1); errors.Is(err, syscall.EIO) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	add()
	check(stationOf(t, open(), nil))
}

package rdmacm

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/refuse"
)

// A wait ends at once if this host forbids to send what makes the system ask for a link address: nothing is to be known
// then.
func TestWaysBehindAFirewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := refuse.Thread(unix.EPERM, unix.SYS_SENDTO, unix.SYS_SENDMSG); err != nil {
			t.Skip(err)
		}
		n := &neighbours{ways: map[wayKey]*way{hereToHere: {looked: time.Now()}}}
		begin := time.Now()
		if err := n.await(t.Context(), hereToHere); err != nil || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

package soft

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestMTULowered: after the interface's MTU became smaller than a connection's path MTU, messages that fit it pass,
// and the first longer one fails with an error that names the cause and the remedy.
func TestMTULowered(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	apart.Interface(t, "lo", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) })
	end := func(addr string) *side {
		dev, err := New(softlink.On(Config{Name: "vrb_" + addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Shards: 1},
			softlink.Links{Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
				return udp.Open(udp.Config{Addrs: addrs, Ports: ports})
			}}))
		check(t, err)
		return newSide(t, dev.Device)
	}
	a, b := end("127.0.0.1"), end("127.0.0.2")
	opts := &verbs.ConnectOptions{RNRRetry: 7, MinRNRTimer: 12, MTU: verbs.MTU4096}
	check(t, a.qp.Connect(must2(b.qp.LocalInfo())(t), opts))
	check(t, b.qp.Connect(must2(a.qp.LocalInfo())(t), opts))
	a.sendMessage(t, b)

	apart.Interface(t, "lo", unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(1500) })
	post := func(n int) error {
		check(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 8192)}}))
		check(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, n)}}))
		var wcs [1]verbs.WC
		for begin := time.Now(); must2(a.cq.Poll(wcs[:]))(t) == 0; time.Sleep(50 * time.Microsecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatal("no completion")
			}
		}
		return wcs[0].Err()
	}
	if err := post(1000); err != nil {
		t.Error("a message that fits:", err)
	}
	err := post(4096)
	var story *verbs.WCError
	if !errors.As(err, &story) || !errors.Is(err, verbs.WCRetryExcErr) || !errors.Is(err, syscall.EMSGSIZE) ||
		story.RefusedLen != 28+12+4096+4 ||
		!strings.Contains(err.Error(), "the MTU of the route to the peer is 1500: connect with a smaller path MTU") {
		t.Fatalf("%v", err)
	}
	page := must2(os.ReadFile("../../docs/troubleshooting.md"))(t)
	_, why, _ := strings.Cut(err.Error(), "; this host")
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), why) {
		t.Errorf("the page does not show: %v", err)
	}
	counters := Counters(a.ctx.Device())
	i := slices.IndexFunc(counters, func(c Counter) bool { return c.Name == "tx_too_long" })
	if i < 0 || counters[i].Value < 3 {
		t.Errorf("tx_too_long: %v", counters)
	}
}

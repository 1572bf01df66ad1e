package rdmacm_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// The descriptor is readable exactly while there is an event, however the events come and go.
func TestC_CHAN_05_Readable(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		resolve := func(id *rdmacm.ID) { w.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout)) }
		resolve(e.ID)
		fd := must(e.ch.FD())(w) // asked for when there is an event already
		readable := func(want bool) {
			t.Helper()
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(p, 0); err != nil || (n == 1 && p[0].Revents == unix.POLLIN) != want {
				t.Errorf("poll: %d descriptors, events %#x, %v; readable should be %v", n, p[0].Revents, err, want)
			}
		}
		readable(true)
		readable(true)
		ev := w.next(e.ch, rdmacm.EventAddrResolved)
		readable(false) // got, if not acknowledged
		w.ok(ev.Ack())
		others := []*rdmacm.ID{must(w.a.CreateID(e.ch, rdmacm.PSTCP, nil))(w), must(w.a.CreateID(e.ch, rdmacm.PSTCP, nil))(w)}
		for _, id := range others {
			resolve(id)
		}
		e.expect(rdmacm.EventAddrResolved)
		readable(true) // one is left
		w.ok(others[1].Close())
		readable(false) // it has gone with its ID
		next := w.newEnd(w.a, rdmacm.PSTCP)
		fdNext := must(next.ch.FD())(w)
		w.ok(e.ResolveRoute(bg, timeout))
		readable(true)
		w.ok(e.Migrate(next.ch))
		readable(false)
		fd = fdNext
		readable(true)
		next.expect(rdmacm.EventRouteResolved)
		readable(false)
		w.ok(others[0].Close())
		w.ok(e.Close())
		w.ok(e.ch.Close())
		next.close()
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) { // C-CHAN-07
			t.Errorf("the descriptor of a closed channel: %v", err)
		}
	})
}

// The network learns of members that receive, and of no others: IGMP and MLD report the groups of /proc.
func TestC_MC_10_15_Membership(t *testing.T) {
	_, addr := udpHost(t, 10)
	dev, err := soft.New(soft.Config{Name: "m0", Addrs: []netip.Addr{addr, netip.IPv6Loopback()}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, a: rdmacm.NewHost(dev.Device)}
	for _, g := range []struct {
		file, shown string
		group, from netip.Addr
	}{
		{"/proc/net/igmp", "0D1764EF", netip.MustParseAddr("239.100.23.13"), addr}, // in the machine's byte order
		{"/proc/net/igmp6", "ff1e0000000000000000000023130064", netip.MustParseAddr("ff1e::2313:64"), netip.IPv6Loopback()},
	} {
		member := func() bool {
			b, err := os.ReadFile(g.file)
			if err != nil {
				t.Skip(err)
			}
			return strings.Contains(string(b), g.shown)
		}
		id := must(w.a.CreateID(nil, rdmacm.PSUDP, nil))(w)
		err := id.BindAddr(at(g.from, 0))
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EADDRINUSE) {
			t.Logf("no %v here, or another process has its port: %v", g.from, err)
			w.ok(id.Close())
			continue
		}
		w.ok(err)
		w.ok(id.CreateQP(nil, udInit()))
		to := at(g.group, 0)
		w.ok(id.JoinMulticastEx(bg, &rdmacm.JoinMCAttr{CompMask: 3, JoinFlags: rdmacm.JoinSendOnlyFullMember, Addr: to}, nil))
		if member() {
			t.Errorf("%v: the network knows a member that only sends", g.group)
		}
		w.ok(id.LeaveMulticast(to))
		w.ok(id.JoinMulticast(bg, to, nil))
		if !member() {
			t.Errorf("%v: the network does not know the member", g.group)
		}
		w.ok(id.LeaveMulticast(to))
		if member() {
			t.Errorf("%v: the network still knows the member", g.group)
		}
		w.ok(id.JoinMulticast(bg, to, nil))
		w.destroy(id)
		if member() {
			t.Errorf("%v: the network knows a member that has gone", g.group)
		}
	}
	w.ok(w.a.Close())
}

// TestCountCMEvents follows the units of a channel's semaphore: retrieved by a reader and by GetEvent, gone with an ID,
// moved with an ID to another channel, and not touched after Close.
func TestCountCMEvents(t *testing.T) {
	in(t, func(w *world) {
		e, next := w.newEnd(w.a, rdmacm.PSTCP), w.newEnd(w.a, rdmacm.PSTCP)
		resolve := func(id *rdmacm.ID) { w.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout)) }
		units := func(fd, want int) {
			t.Helper()
			var b [8]byte
			got := 0
			for ; ; got++ {
				if _, err := unix.Read(fd, b[:]); err != nil {
					break
				}
			}
			if got != want {
				t.Errorf("%d units, want %d", got, want)
			}
			for range got {
				must(unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)))(w)
			}
		}
		var fds [2]int
		for i, ch := range []*rdmacm.EventChannel{e.ch, next.ch} {
			fds[i] = must(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE|unix.EFD_NONBLOCK))(w)
			defer func() { _ = unix.Close(fds[i]) }()
			if i == 0 {
				resolve(e.ID) // an event that is queued already counts
			}
			w.ok(seam.CountCMEvents(ch, fds[i]))
		}
		units(fds[0], 1)
		e.expect(rdmacm.EventAddrResolved) // GetEvent takes the unit
		units(fds[0], 0)

		others := []*rdmacm.ID{must(w.a.CreateID(e.ch, rdmacm.PSTCP, nil))(w), must(w.a.CreateID(e.ch, rdmacm.PSTCP, nil))(w)}
		for _, id := range others {
			resolve(id)
		}
		units(fds[0], 2)
		var b [8]byte
		must(unix.Read(fds[0], b[:]))(w) // a reader pops
		w.ok(must(e.ch.TryGetEvent())(w).Ack())
		units(fds[0], 1)
		w.ok(others[1].Close())
		units(fds[0], 0)

		// The event of an ID that is closed is gone when the reader comes for it, and takes no unit of later ones along.
		late := [3]*rdmacm.ID{}
		for i := range late {
			late[i] = must(w.a.CreateID(e.ch, rdmacm.PSTCP, nil))(w)
		}
		resolve(late[0])
		must(unix.Read(fds[0], b[:]))(w)
		w.ok(late[0].Close())
		_, err := e.ch.TryGetEvent()
		w.errno(err, syscall.EAGAIN)
		resolve(late[1])
		resolve(late[2])
		units(fds[0], 2)
		e.expect(rdmacm.EventAddrResolved)
		units(fds[0], 1)
		w.ok(late[1].Close())
		w.ok(late[2].Close())
		units(fds[0], 0)

		w.ok(e.ResolveRoute(bg, timeout))
		units(fds[0], 1)
		w.ok(e.Migrate(next.ch))
		units(fds[0], 0)
		units(fds[1], 1)
		must(unix.Read(fds[1], b[:]))(w)
		w.ok(must(next.ch.TryGetEvent())(w).Ack())
		units(fds[1], 0)

		w.ok(others[0].Close())
		w.ok(e.Close())
		w.ok(e.ch.Close())
		next.close()
		units(fds[1], 0)
	})
}

package udp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// openShared opens a link that shares its addresses.
func openShared(t testing.TB, port uint16, ports int, addrs ...netip.Addr) *Link {
	t.Helper()
	return batchedLink(t, Config{Addrs: addrs, Port: port, Ports: ports, Shared: true})
}

// qpn returns a QP number of a port.
func (l *Link) qpn(port int) uint32 {
	first, _, _ := l.QPNs(port)
	return first + 0x100
}

// sendTo sends packets for QPs from l, and returns after the kernel has them.
func sendTo(l *Link, a netip.Addr, qpns ...uint32) {
	tx := link.NewTxBatch(64, 1<<17)
	for i, qpn := range qpns {
		fill(tx.Alloc(&link.Path{Src: a, Dst: a}, qpn, 64), qpn, uint32(i))
	}
	l.Ports()[0].Send(tx)
}

// mad returns a packet for QP 1 with a connection management datagram.
func mad(attr uint16, service uint64, local, remote uint32) []byte {
	b := make([]byte, wire.BTHLen+wire.DETHLen+wire.MADLen)
	wire.BTH(b).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 7, 0)
	wire.DETH(b[wire.BTHLen:]).Put(0x80010000, wire.GSIQPN)
	m := b[wire.BTHLen+wire.DETHLen:]
	m[0], m[1], m[2], m[3] = 1, 7, 2, 3
	binary.BigEndian.PutUint16(m[16:], attr)
	binary.BigEndian.PutUint32(m[24:], local)
	binary.BigEndian.PutUint32(m[28:], remote)
	if attr == 0x10 || attr == 0x17 {
		binary.BigEndian.PutUint64(m[32:], service)
	}
	return b
}

func sendMAD(l *Link, a netip.Addr, pkt []byte) {
	tx := link.NewTxBatch(1, 1<<12)
	copy(tx.Alloc(&link.Path{Src: a, Dst: a}, wire.GSIQPN, len(pkt)), pkt)
	l.Ports()[0].Send(tx)
}

// nothing fails the test if a packet arrives.
func nothing(t *testing.T, p link.Port) {
	t.Helper()
	var b link.RxBatch
	p.Wait(20 * time.Millisecond)
	for range gsiTurns + 1 {
		if n := p.Recv(&b); n > 0 {
			t.Fatalf("%d packets came, the first for QP 0x%x", n, wire.BTH(b.Packets[0].Data).DestQPN())
		}
	}
}

// TestSharedQPNumbers checks that packets arrive only at the link and the port that own their QP number.
func TestSharedQPNumbers(t *testing.T) {
	for _, a := range loopbacks {
		port := testPort(t)
		links := []*Link{openShared(t, port, 1, a), openShared(t, port, 2, a), openShared(t, port, 3, a)}
		var slots []int
		for _, from := range links {
			for _, to := range links {
				for i, p := range to.Ports() {
					sendTo(from, a, to.qpn(i), to.qpn(i)+1)
					for k, got := range receive(t, p, 2) {
						if n := wire.BTH(got.Data).DestQPN(); n != to.qpn(i)+uint32(k) {
							t.Errorf("QP 0x%x got a packet for 0x%x", to.qpn(i)+uint32(k), n)
						}
					}
				}
			}
			slots = append(slots, from.slots...)
		}
		for _, l := range links {
			for _, p := range l.Ports() {
				nothing(t, p)
			}
		}
		slices.Sort(slots)
		if len(slices.Compact(slots)) != 6 {
			t.Errorf("slots %v are not all different", slots)
		}
	}
}

// TestSharedSlotComesEmpty checks that a link that claims the slot of an ended link does not get packets for that
// link, and that none are kept meanwhile.
func TestSharedSlotComesEmpty(t *testing.T) {
	port := testPort(t)
	a := openShared(t, port, 1, lo4)
	old := openShared(t, port, 1, lo4)
	qpn := old.qpn(0)
	fd, err := unix.FcntlInt(uintptr(old.members[lo4].slots[0].FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	old.Close()
	none := func() bool {
		_, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
		return err == unix.EAGAIN
	}
	begin := time.Now()
	for sendTo(a, lo4, qpn); !none(); sendTo(a, lo4, qpn) { // until the leader notices
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the socket of a slot without owner receives packets")
		}
	}
	for range 100 {
		sendTo(a, lo4, qpn, qpn, qpn)
	}
	if !none() {
		t.Error("the socket of a slot without owner keeps packets")
	}
	var rest []*Link
	for range host.Slots {
		next := openShared(t, port, 1, lo4)
		if next.qpn(0) == qpn {
			nothing(t, next.Ports()[0])
			sendTo(a, lo4, qpn)
			receive(t, next.Ports()[0], 1)
			break
		}
		rest = append(rest, next)
	}
	for _, l := range rest {
		l.Close()
	}
}

// TestSharedSlotsRunOut checks that links with one port each can use all slots, and the error of the next link.
func TestSharedSlotsRunOut(t *testing.T) {
	port := testPort(t)
	var all []*Link
	slots := map[int]bool{}
	for range host.Slots {
		l := openShared(t, port, 1, lo4)
		slots[l.slots[0]] = true
		all = append(all, l)
	}
	if len(slots) != host.Slots {
		t.Errorf("%d different slots", len(slots))
	}
	if _, err := Open(Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true}); !errors.Is(err, syscall.EUSERS) ||
		!strings.Contains(err.Error(), "all 256 QPN slots of 127.0.0.1 are in use") {
		t.Errorf("one link more than slots: %v, want EUSERS", err)
	}
	sendTo(all[0], lo4, all[255].qpn(0))
	receive(t, all[255].Ports()[0], 1)
	all[17].Close()
	all[200].Close()
	few := openShared(t, port, 4, lo4)
	if n := len(few.Ports()); n < 1 || n > 2 {
		t.Errorf("%d ports where two slots are left", n)
	}
}

// TestSharedManyPortsLeaveRoom checks that links with many ports leave slots for links with one.
func TestSharedManyPortsLeaveRoom(t *testing.T) {
	port := testPort(t)
	ports := 0
	for i := range 208 {
		l := openShared(t, port, 16, lo4)
		if n := len(l.Ports()); i > 50 && n != 1 {
			t.Errorf("link %d has %d ports", i, n)
		}
		ports += len(l.Ports())
	}
	if ports > host.Slots {
		t.Errorf("%d ports", ports)
	}
}

// TestSharedBuffersAreBounded checks that the kernel memory for packets at one address is bounded for any number of
// processes.
func TestSharedBuffersAreBounded(t *testing.T) {
	port := testPort(t)
	var all []*Link
	for _, n := range []int{1, 2, 5, 40} {
		for len(all) < n {
			all = append(all, openShared(t, port, 1, lo4))
		}
		sum := 0
		for _, l := range all {
			p := l.ports[0]
			p.mu.Lock()
			rx := slices.Clone(p.rx)
			p.mu.Unlock()
			for _, s := range rx {
				size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
				if err != nil {
					t.Fatal(err)
				}
				sum += size
			}
		}
		if sum > 16<<20 || sum < n*100<<10 {
			t.Errorf("%d links have buffers of %d bytes", n, sum)
		}
	}
}

// TestSharedMADs checks that a request arrives at the link that has claimed its service ID, an answer at the link of
// its communication ID, and any other at the leader.
func TestSharedMADs(t *testing.T) {
	port := testPort(t)
	leader, b, c := openShared(t, port, 1, lo4), openShared(t, port, 2, lo4), openShared(t, port, 1, lo4)
	release, err := b.ClaimService(0x1234, lo4)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.ClaimService(0x1234, netip.Addr{})
	if err != nil {
		t.Fatalf("claiming twice: %v", err)
	}
	if _, err := c.ClaimService(0x1234, lo4); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("a service of another process: %v, want EADDRINUSE", err)
	}
	idOf := func(l *Link) uint32 { p, _ := l.CommIDs(); return p | 77 }
	const req, rej, rep, dreq, sidrReq, sidrRep = 0x10, 0x12, 0x13, 0x15, 0x17, 0x18
	for _, x := range []struct {
		to  *Link
		mad []byte
	}{
		{b, mad(req, 0x1234, 5, 0)},
		{b, mad(sidrReq, 0x1234, 5, 0)},
		{leader, mad(req, 0x9999, 5, 0)},
		{c, mad(rep, 0, idOf(b), idOf(c))},
		{b, mad(rej, 0, idOf(c), idOf(b))},
		{leader, mad(dreq, 0, idOf(b), idOf(leader))},
		{c, mad(sidrRep, 0, idOf(c), 0)},
	} {
		sendMAD(c, lo4, x.mad)
		if x.to != leader {
			nothing(t, leader.Ports()[0]) // Recv forwards the packet
		}
		got := receive(t, x.to.Ports()[0], 1)[0]
		if string(got.Data) != string(x.mad) || got.Src != lo4 || got.Dst != lo4 {
			t.Errorf("attribute 0x%x: another packet came, from %v to %v", x.mad[36:38], got.Src, got.Dst)
		}
		for _, l := range []*Link{leader, b, c} {
			nothing(t, l.Ports()[0])
		}
	}
	release()
	if _, err := c.ClaimService(0x1234, lo4); err == nil {
		t.Error("a service that was claimed twice is free after one release")
	}
	again()
	releaseNew, err := c.ClaimService(0x1234, lo4)
	if err != nil {
		t.Fatalf("a released service: %v", err)
	}
	defer releaseNew()
	sendMAD(c, lo4, mad(req, 0x1234, 5, 0))
	nothing(t, leader.Ports()[0])
	receive(t, c.Ports()[0], 1)
}

// TestSharedLeaderCloses checks that another link reads QP 1 after the leader has closed, and that no packet is lost
// meanwhile.
func TestSharedLeaderCloses(t *testing.T) {
	port := testPort(t)
	leader, b := openShared(t, port, 1, lo4), openShared(t, port, 1, lo4)
	for i := range 3 {
		leader.Close()
		sendMAD(b, lo4, mad(0x10, 0x4321, uint32(i), 0))
		receive(t, b.Ports()[0], 1)
		leader, b = b, openShared(t, port, 1, lo4)
	}
}

// TestSharedHelper is another process of TestSharedKill: it returns the packets for its QPs.
func TestSharedHelper(t *testing.T) {
	port := os.Getenv("VERBENA_TEST_SHARED")
	if port == "" {
		t.Skip("it is run by TestSharedKill")
	}
	var n uint16
	fmt.Sscan(port, &n)
	at := netip.MustParseAddr(os.Getenv("VERBENA_TEST_ADDR"))
	l := openShared(t, n, 1, at)
	leaveWill(t, l)
	fmt.Printf("QP %d\n", l.qpn(0))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with its parent
		os.Exit(0)
	}()
	var b link.RxBatch
	for p := l.Ports()[0]; ; p.Wait(time.Second) {
		for p.Recv(&b) > 0 {
			for _, pkt := range b.Packets {
				if len(pkt.Data) >= 16 {
					sendTo(l, at, binary.BigEndian.Uint32(pkt.Data[12:]))
				}
			}
		}
	}
}

type helper struct {
	cmd *exec.Cmd
	qpn uint32
}

func helperCommand(exe string, port uint16, at netip.Addr, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command(exe, "-test.run=^TestSharedHelper$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), fmt.Sprintf("VERBENA_TEST_SHARED=%d", port), "VERBENA_TEST_ADDR="+at.String())
	cmd.SysProcAttr = attr
	return cmd
}

// failHelper returns the output of a helper that cannot open the link.
func failHelper(t *testing.T, exe string, port uint16, attr *syscall.SysProcAttr) string {
	t.Helper()
	out, err := helperCommand(exe, port, lo4, attr).CombinedOutput()
	if errors.Is(err, syscall.EACCES) {
		t.Skip("the other user may not run the test binary")
	}
	if err == nil {
		t.Errorf("another user's process can open the link:\n%s", out)
	}
	return string(out)
}

func startHelper(t *testing.T, exe string, port uint16, attr *syscall.SysProcAttr) helper {
	t.Helper()
	return startCommand(t, helperCommand(exe, port, lo4, attr))
}

func startCommand(t *testing.T, cmd *exec.Cmd) helper {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h := helper{cmd: cmd}
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "QP %d", &h.qpn); n == 1 {
			return h
		}
		fmt.Fprintln(&text, lines.Text())
	}
	t.Fatalf("output of the other process: %s", &text)
	return h
}

// TestSharedKill checks that any process may be killed, also the first one and the last one: packets of the others
// arrive, QP 1 is read, and new processes can join.
func TestSharedKill(t *testing.T) {
	needBatched(t)
	port := testPort(t)
	first := startHelper(t, os.Args[0], port, nil)
	us := openShared(t, port, 1, lo4)
	others := []helper{startHelper(t, os.Args[0], port, nil), startHelper(t, os.Args[0], port, nil)}
	echo := func(h helper) { t.Helper(); echoOf(t, us, h) }
	all := append([]helper{first}, others...)
	for len(all) > 0 {
		for _, h := range all {
			echo(h)
		}
		// The first process, which opened the sockets and leads; then the newest; then the rest.
		victim := all[0]
		if len(all) == 2 {
			victim = all[1]
		}
		_ = victim.cmd.Process.Kill()
		for _, h := range all {
			if h != victim {
				echo(h) // during the kill
			}
		}
		_ = victim.cmd.Wait()
		all = slices.DeleteFunc(all, func(h helper) bool { return h == victim })
	}
	echo(startHelper(t, os.Args[0], port, nil))
	// Now this process is the only old one, and leads, unless the new one was faster.
	sendMAD(us, lo4, mad(0x13, 0, 1, func() uint32 { p, _ := us.CommIDs(); return p }()))
	receive(t, us.Ports()[0], 1)
}

// TestSharedStoppedLeader checks that the error names the process that leads and is stopped.
func TestSharedStoppedLeader(t *testing.T) {
	needBatched(t)
	port := testPort(t)
	leader := startHelper(t, os.Args[0], port, nil)
	apart.Stop(t, leader.cmd.Process)
	_, err := Open(Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true})
	if !errors.Is(err, syscall.ETIMEDOUT) || !strings.Contains(err.Error(), fmt.Sprintf("process %d,",
		leader.cmd.Process.Pid)) {
		t.Errorf("a leader that does not answer: %v", err)
	}
	if err := leader.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	echoOf(t, openShared(t, port, 1, lo4), leader)
}

// TestSharedStoppedLeaderBlocksNothingElse checks that connections and Close do not wait while a claim waits for a
// leader that is stopped.
func TestSharedStoppedLeaderBlocksNothingElse(t *testing.T) {
	needBatched(t)
	port := testPort(t)
	leader := startHelper(t, os.Args[0], port, nil)
	l := openShared(t, port, 1, lo4)
	apart.Stop(t, leader.cmd.Process)
	claimed := make(chan error, 1)
	go func() {
		_, err := l.ClaimService(0x1234, netip.Addr{})
		claimed <- err
	}()
	for l.mu.TryLock() { // until the claim is being made
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if l.NewLastWill(&link.Path{Src: lo4, Dst: lo4}) == nil {
		t.Error("no last will")
	}
	if l.Capabilities().RecvBuffer == 0 {
		t.Error("no receive buffer")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-claimed; err == nil || errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("claim: %v: must end with the link", err)
	}
}

// TestSharedStoppedLeaderBlocksNoOtherAddress checks that a claim at one address does not wait while SetAddrs leaves
// another one, whose leader is stopped.
func TestSharedStoppedLeaderBlocksNoOtherAddress(t *testing.T) {
	needBatched(t)
	port := testPort(t)
	leader := startHelper(t, os.Args[0], port, nil)
	l := openShared(t, port, 1, lo4, lo4b)
	apart.Stop(t, leader.cmd.Process)
	left := make(chan error, 1)
	go func() { left <- l.SetAddrs([]netip.Addr{lo4b}) }()
	member := func() *member {
		l.membersMu.Lock()
		defer l.membersMu.Unlock()
		return l.members[lo4]
	}
	for member() != nil {
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	if _, err := l.ClaimService(0x1235, lo4b); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("the claim took %v", took)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

// TestSharedStoppedLeaderBlocksNoOtherGroup checks that other calls of the link do not wait while a join of an IPv6
// group at the loopback address waits for a leader that is stopped, and that the join reports that it has failed.
func TestSharedStoppedLeaderBlocksNoOtherGroup(t *testing.T) {
	needBatched(t)
	a := netip.IPv6Loopback()
	if !has(loopbacks, a) {
		t.Skip("no IPv6 here")
	}
	port := testPort(t)
	leader := startCommand(t, helperCommand(os.Args[0], port, a, nil))
	l := openShared(t, port, 1, a, lo4)
	apart.Stop(t, leader.cmd.Process)
	joined := make(chan error, 1)
	go func() { joined <- l.Join(netip.MustParseAddr("ff02::77:8")) }()
	for m := l.members[a]; m.following.TryLock(); time.Sleep(time.Millisecond) { // until the leader is asked
		m.following.Unlock()
	}
	other := netip.MustParseAddr("239.255.77.8")
	if err := errors.Join(l.Join(other), l.Leave(other)); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-joined; err == nil || errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("join: %v: must end with the link", err)
	}
}

// TestSharedAmongUsers checks that the error of another user's process names the owner of the address, and the
// remedy.
func TestSharedAmongUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	port := testPort(t)
	openShared(t, port, 1, lo4)
	out := failHelper(t, readableCopy(t, os.Args[0]), port,
		&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	for _, want := range []string{"user root", "run both as the same user", "verbena serve", "VERBENA_DEVICES"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in the output of the other user:\n%s", want, out)
		}
	}
}

// readableCopy copies a program to a path where every user can run it.
func readableCopy(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "verbena-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(dir+"/prog", data, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/prog"
}

// TestSharedManyKills kills many processes, one after another and two at once, the leaders among them: packets of the
// others arrive, no two processes own one slot, and new ones can join.
func TestSharedManyKills(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	port := testPort(t)
	us := openShared(t, port, 1, lo4)
	var all []helper
	for range 8 {
		all = append(all, startHelper(t, os.Args[0], port, nil))
	}
	for round := range 12 {
		victims := []int{round % 8}
		if round%3 == 2 {
			victims = append(victims, (round+4)%8)
		}
		for _, i := range victims {
			_ = all[i].cmd.Process.Kill()
		}
		for i, h := range all {
			if !slices.Contains(victims, i) {
				echoOf(t, us, h)
			}
		}
		for _, i := range victims {
			_ = all[i].cmd.Wait()
			all[i] = startHelper(t, os.Args[0], port, nil)
		}
		slots := map[int]bool{us.slots[0]: true}
		for _, h := range all {
			slots[host.SlotOf(h.qpn)] = true
		}
		if len(slots) != 9 {
			t.Fatalf("round %d: 9 processes have %d slots", round, len(slots))
		}
		if round == 5 { // from now on other processes lead
			us.Close()
			us = openShared(t, port, 1, lo4)
		}
	}
}

// TestSharedByManyProcesses checks that many processes share an address; TestSharedSlotsRunOut uses the maximum
// number of links.
func TestSharedByManyProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	port := testPort(t)
	us := openShared(t, port, 4, lo4)
	var all []helper
	for range 60 {
		all = append(all, startHelper(t, os.Args[0], port, nil))
	}
	for i := 0; i < len(all); i += 20 {
		echoOf(t, us, all[i])
	}
	echoOf(t, us, all[len(all)-1])
}

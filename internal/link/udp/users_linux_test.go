package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// runDir makes a VERBENA_RUN directory that every user can reach.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "vrb-run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VERBENA_RUN", dir)
	return dir
}

// serve shares an address as verbena serve does.
func serve(t *testing.T, port uint16, a netip.Addr, mode fs.FileMode, gid int) *Server {
	t.Helper()
	s, err := Serve(Config{Addrs: []netip.Addr{a}, Port: port}, host.Sharing{Mode: mode, GID: gid, UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Close() })
	return s
}

// echoOf sends a packet to a helper and waits for its answer.
func echoOf(t *testing.T, us *Link, h helper) {
	t.Helper()
	tx := link.NewTxBatch(1, 1<<12)
	pkt := tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, h.qpn, 16)
	wire.BTH(pkt).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, h.qpn, 1, 0)
	binary.BigEndian.PutUint32(pkt[wire.BTHLen:], us.qpn(0))
	us.Ports()[0].Send(tx)
	receive(t, us.Ports()[0], 1)
}

// TestServed checks that members of verbena serve reach each other, that QP 1 works between them, that they are
// informed when verbena serve ends, and that the next one can start.
func TestServed(t *testing.T) {
	needBatched(t)
	dir := runDir(t)
	port := testPort(t)
	for range 2 {
		s := serve(t, port, lo4, 0o700, -1)
		lost := make(chan error, 1)
		us := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true,
			Lost: func(err error) { lost <- err }})
		a, b := startHelper(t, os.Args[0], port, nil), startHelper(t, os.Args[0], port, nil)
		echoOf(t, us, a)
		echoOf(t, us, b)
		release, err := us.ClaimService(0x1234, lo4)
		if err != nil {
			t.Fatal(err)
		}
		other := openShared(t, port, 1, lo4)
		if _, err := other.ClaimService(0x1234, lo4); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a service ID of another member: %v, want EADDRINUSE", err)
		}
		sendMAD(other, lo4, mad(0x10, 0x1234, 1, 0))
		receive(t, us.Ports()[0], 1)
		id, _ := us.CommIDs()
		sendMAD(other, lo4, mad(0x15, 0, 1, id|7))
		receive(t, us.Ports()[0], 1)
		nothing(t, other.Ports()[0])
		_ = a.cmd.Process.Kill()
		echoOf(t, us, b)
		release()
		if _, err := Serve(Config{Addrs: []netip.Addr{lo4}, Port: port}, host.Sharing{Mode: 0o700, GID: -1,
			UID: -1}); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a second server: %v", err)
		}
		s.Close()
		select {
		case err := <-lost:
			if !errors.Is(err, syscall.ENETDOWN) || !strings.Contains(err.Error(), "verbena serve") {
				t.Errorf("the error at the member: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the member does not notice the end of the server")
		}
		other.Close()
		us.Close()
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		_ = a.cmd.Wait()
		if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
			t.Errorf("files left: %v", left)
		}
	}
	openShared(t, port, 1, lo4) // without verbena serve, too
}

// TestServedDirectory checks that neither the server nor a member follows or changes what another user has put into
// the directory.
func TestServedDirectory(t *testing.T) {
	needBatched(t)
	dir := runDir(t)
	port := testPort(t)
	s := serve(t, port, lo4, 0o700, -1)
	all, _ := filepath.Glob(dir + "/*")
	if len(all) != 1 {
		t.Fatalf("%v", all)
	}
	s.Close()
	_, name := filepath.Split(all[0])
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() error {
		s, err := Serve(Config{Addrs: []netip.Addr{lo4}, Port: port}, host.Sharing{Mode: 0o770, GID: -1, UID: -1})
		if err == nil {
			s.Close()
		}
		return err
	}
	for what, f := range map[string]func(path string) error{
		"symbolic link": func(p string) error { return os.Symlink(victim, p) },
		"file":          func(p string) error { return os.WriteFile(p, nil, 0o600) },
	} {
		if err := f(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := start(); err == nil {
			t.Errorf("the server takes a %s", what)
		}
		if l, err := Open(Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true}); err == nil {
			t.Errorf("a member takes a %s", what)
			l.Close()
		}
		os.Remove(filepath.Join(dir, name))
	}
	if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("the directory that a link led to: %v, %v", st.Mode(), err)
	}
	// A directory that other users can write to.
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true}); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a member takes a directory that anybody can write to: %v", err)
	}
	os.Remove(filepath.Join(dir, name))
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("the server takes a directory that anybody can write to: %v", err)
	}
}

// TestServedAfterAKill checks that the files of a killed server do not disturb the next one, and that processes of
// one user work without it.
func TestServedAfterAKill(t *testing.T) {
	needBatched(t)
	dir := runDir(t)
	port := testPort(t)
	s := serve(t, port, lo4, 0o700, -1)
	all, _ := filepath.Glob(dir + "/*")
	s.Close()
	if err := os.Mkdir(all[0], 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: all[0] + "/socket"}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	openShared(t, port, 1, lo4).Close()
	serve(t, port, lo4, 0o700, -1)
	openShared(t, port, 1, lo4)
}

// TestServedAmongUsers checks that users that the group admits share the address, and that the error of other users
// names the remedy.
func TestServedAmongUsers(t *testing.T) {
	needBatched(t)
	if os.Getuid() != 0 {
		t.Skip("only root can run processes as other users")
	}
	const member, stranger = 64534, 64533
	as := func(uid, gid uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	dir := runDir(t)
	port := testPort(t)
	serve(t, port, lo4, 0o770, member)
	exe := readableCopy(t, os.Args[0])
	us := openShared(t, port, 1, lo4)
	a := startHelper(t, exe, port, as(member, member))
	b := startHelper(t, exe, port, as(member-10, member)) // another member of the group
	echoOf(t, us, a)
	echoOf(t, us, b)
	_ = a.cmd.Process.Kill()
	echoOf(t, us, b)
	out := failHelper(t, exe, port, as(stranger, stranger))
	for _, want := range []string{
		"(group 64534), and user 64533 is not one of them", "verbena serve", "VERBENA_DEVICES", dir, "EACCES",
	} {
		if !strings.Contains(out, want) && want != "EACCES" {
			t.Errorf("%q is missing in the output of another user:\n%s", want, out)
		}
	}
}

// TestServedSocketIsConfined checks that the socket of a member receives only packets for its slot, also if the
// program of the group chooses it for others, and that the member cannot change that.
func TestServedSocketIsConfined(t *testing.T) {
	needBatched(t)
	runDir(t)
	port := testPort(t)
	serve(t, port, lo4, 0o700, -1)
	a, b := openShared(t, port, 1, lo4), openShared(t, port, 1, lo4)
	fd := a.members[lo4].slots[0].FD
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err == nil {
		t.Error("a member can remove the filter of its socket")
	}
	// A program that delivers everything to a.
	index := uint32(host.FirstSlot + a.slots[0])
	all := []unix.SockFilter{{Code: bpfRetK, K: index}}
	if err := attach(fd, unix.SO_ATTACH_REUSEPORT_CBPF, all); err == nil {
		t.Error("a member can replace the program of the group")
	}
	of, err := a.openRecv(lo4, true) // only the server's user can
	if err == nil {
		defer unix.Close(of)
		err = attach(of, unix.SO_ATTACH_REUSEPORT_CBPF, all)
	}
	if err != nil {
		t.Fatal(err)
	}
	id, _ := b.CommIDs()
	sendTo(b, lo4, b.qpn(0), b.qpn(0)+1)
	sendMAD(b, lo4, mad(0x13, 0, id, id))
	sendMAD(b, lo4, mad(0x10, 7, id, id))
	if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("a member receives a packet for another: %v", err)
	}
	id, _ = a.CommIDs()
	sendTo(b, lo4, a.qpn(0))
	sendMAD(b, lo4, mad(0x13, 0, id, id))
	if got := receive(t, a.Ports()[0], 2); bytes.Equal(got[0].Data, got[1].Data) {
		t.Error("the same packet twice")
	}
}

// TestServedErrorIsEACCES checks that an address of another user's processes is refused at once.
func TestServedErrorIsEACCES(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := runDir(t)
	port := testPort(t)
	serve(t, port, lo4, 0, -1)
	all, _ := filepath.Glob(dir + "/*")
	if err := os.Chmod(all[0], 0); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true})
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(fmt.Sprint(err), dir) {
		t.Errorf("a directory that admits nobody: %v", err)
	}
}

// The error of a process that looks for verbena serve in another directory names verbena serve and its directory, not a
// member, whose end would not free the port.
func TestServedInAnotherDirectory(t *testing.T) {
	needBatched(t)
	dir, port := runDir(t), testPort(t)
	serve(t, port, lo4, 0o700, -1)
	us := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true})
	member := startHelper(t, os.Args[0], port, nil)
	echoOf(t, us, member)
	other := runDir(t)
	cfg := Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true}
	_, program := Open(cfg)
	_, server := Serve(cfg, host.Sharing{Mode: 0o700, GID: -1, UID: -1})
	for _, c := range []struct {
		err  error
		says []string
	}{
		{program, []string{"verbena serve in " + dir, "this process looks in " + other, "set VERBENA_RUN=" + dir}},
		{server, []string{"verbena serve in " + dir, "stop that one to start this one"}},
	} {
		if !errors.Is(c.err, syscall.EADDRINUSE) {
			t.Fatalf("in another directory: %v, want EADDRINUSE", c.err)
		}
		for _, want := range c.says {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, c.err)
			}
		}
		// With the space: the number may be a part of a directory's name.
		if strings.Contains(c.err.Error(), fmt.Sprintf("process %d ", member.cmd.Process.Pid)) {
			t.Errorf("the error names a member, process %d: %v", member.cmd.Process.Pid, c.err)
		}
	}
}

// All processes that have the port are named, since each must end.
func TestSeveralOwners(t *testing.T) {
	var all []owner
	for i, want := range []string{
		"process 11 (x); stop it, ", "process 11 (x), process 12 (x); stop them, ",
		"process 11 (x), process 12 (x), process 13 (x); stop them, ",
		"process 11 (x), process 12 (x), process 13 (x) and 1 more; stop them, ",
	} {
		all = append(all, owner{pid: fmt.Sprint(11 + i), name: "x"})
		if got := names(all) + instead(len(all)); !strings.HasPrefix(got, want) {
			t.Errorf("%d: %s", i+1, got)
		}
	}
}

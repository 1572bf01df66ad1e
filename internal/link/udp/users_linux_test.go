package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// runDir makes a place for the folders of groups that every user can reach.
func runDir(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "vrb-run-") // a short name: those of sockets have at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VERBENA_RUN", dir)
}

// In a folder everything works as without, and what processes leave there does not disturb the next ones.
func TestSharedInFolder(t *testing.T) {
	runDir(t)
	port := testPort(t)
	key := host.Key{Port: port, Addr: lo4}
	if _, err := host.Share(key, 0o700, -1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		first := startHelper(t, os.Args[0], port, nil)
		us := openShared(t, port, 1, lo4)
		release, err := us.ClaimService(0x1234, lo4)
		if err != nil {
			t.Fatal(err)
		}
		second := startHelper(t, os.Args[0], port, nil)
		echoOf(t, us, first)
		_ = first.cmd.Process.Kill()
		echoOf(t, us, second)
		_ = first.cmd.Wait()
		sendMAD(us, lo4, mad(0x10, 0x1234, 1, 0))
		receive(t, us.Ports()[0], 1)
		if host.Unshare(key) {
			t.Error("the folder is removed while processes use it")
		}
		release()
		_ = second.cmd.Process.Kill()
		_ = second.cmd.Wait()
		us.Close()
	}
	if !host.Unshare(key) {
		t.Error("the folder cannot be removed although nobody uses it")
	}
	if host.Unshare(key) {
		t.Error("it is removed twice")
	}
	openShared(t, port, 1, lo4) // without it, too
}

// Users that may write to the folder share the address, whoever of them came first and whoever is killed; others are told what to do.
func TestSharedByUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run processes as other users")
	}
	const member, stranger = 65534, 65533
	as := func(uid, gid uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	runDir(t)
	port := testPort(t)
	if _, err := host.Share(host.Key{Port: port, Addr: lo4}, 0o770, member); err != nil {
		t.Fatal(err)
	}
	exe := readableCopy(t, os.Args[0])
	for _, rootFirst := range []bool{true, false} {
		var us *Link
		if rootFirst {
			us = openShared(t, port, 1, lo4)
		}
		a := startHelper(t, exe, port, as(member, member))
		if !rootFirst {
			us = openShared(t, port, 1, lo4)
		}
		b := startHelper(t, exe, port, as(member-10, member)) // another member of the group
		echoOf(t, us, a)
		echoOf(t, us, b)
		// A datagram of connection management passes between users, whoever leads.
		id, _ := us.CommIDs()
		sendMAD(us, lo4, mad(0x13, 0, 1, id))
		receive(t, us.Ports()[0], 1)

		out := failHelper(t, exe, port, as(stranger, stranger))
		for _, want := range []string{"65533 may not", "verbena serve", "VERBENA_DEVICES", os.Getenv("VERBENA_RUN")} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in what a stranger sees:\n%s", want, out)
			}
		}
		_ = a.cmd.Process.Kill()
		echoOf(t, us, b)
		us.Close()
		next := openShared(t, port, 1, lo4)
		echoOf(t, next, b)
		echoOf(t, next, startHelper(t, exe, port, as(member, member)))
		next.Close()
		_ = b.cmd.Process.Kill()
		_ = a.cmd.Wait()
		_ = b.cmd.Wait()
	}
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

// An address that another user's processes have without a folder is refused at once.
func TestSharedErrorIsEACCES(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	runDir(t)
	port := testPort(t)
	dir, err := host.Share(host.Key{Port: port, Addr: lo4}, 0o500, -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Addrs: []netip.Addr{lo4}, Port: port, Shared: true}); !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder that we may not write to: %v", err)
	}
}

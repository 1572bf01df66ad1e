package host

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// forService returns a request for a service ID.
func forService(id uint64) Mail {
	b := make([]byte, wire.BTHLen+wire.DETHLen+wire.MADLen)
	wire.BTH(b).Put(wire.UD|wire.SendOnly, 0, wire.DefaultPKey, wire.GSIQPN, 1, 0)
	m := b[MADOffset:]
	m[MADClass] = ClassCM
	binary.BigEndian.PutUint16(m[MADAttr:], AttrREQ)
	binary.BigEndian.PutUint64(m[madReqSID:], id)
	return Mail{Packet: b, Src: peerAddr, Dst: peerAddr}
}

// TestRequestWaitsForItsOwner checks that a leader holds a request whose owner has locked the service ID and not
// repeated its claim yet, as after the end of the previous leader, and forwards it once the owner has.
func TestRequestWaitsForItsOwner(t *testing.T) {
	key, g := testLeader(t)
	const id = 7471
	if g.Forward(forService(id)) {
		t.Fatal("a request for a service ID without owner was not left to this process")
	}
	// A lock of another open file description conflicts with those of this process, as one of another process does.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", g.locks.fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	dropped := func() { locksMu.Lock(); g.locks.fds = append(g.locks.fds, fd); locksMu.Unlock() } // see locks
	defer dropped()
	lk := unix.Flock_t{Type: unix.F_WRLCK, Start: serviceLock(id), Len: 1}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lk); err != nil {
		t.Skip(err)
	}
	for range maxHeld + 5 {
		if !g.Forward(forService(id)) {
			t.Fatal("a request was not held although another process owns its service ID")
		}
	}
	c, _, err := key.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, f := range []frame{{kind: kindJoin, id: version, slot: -1, resume: true},
		{kind: kindListen, id: id, slot: -1}} {
		if _, err := c.Write(f.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	mail := 0
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for buf := make([]byte, maxFrame); mail < maxHeld; {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("%d of %d held requests arrived: %v", mail, maxHeld, err)
		}
		if n > 0 && kind(buf[0]) == kindMail {
			mail++
		}
	}
}

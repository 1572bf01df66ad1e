package host

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// A Bound is a UDP socket of this network namespace, as /proc/net shows it.
type Bound struct {
	Inode string // noInode: it is the kernel's own
	Wild  bool   // bound to all addresses
}

const noInode = "0"

// Owned tells whether a process may have the socket open.
func (b Bound) Owned() bool { return b.Inode != noInode }

// BoundTo lists the sockets that hold a port at at's address or at all addresses. While others come and go the kernel may leave some
// out. It is false if they cannot be seen.
func BoundTo(at netip.AddrPort) (found []Bound, ok bool) {
	wantAddr, wantPort := procAddr(at.Addr()), fmt.Sprintf("%04X", at.Port())
	for _, name := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		ok = true
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// sl local_address rem_address st queues timer retransmits uid timeout inode ...
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 {
				continue
			}
			addr, port, _ := strings.Cut(fields[1], ":")
			wild := strings.Trim(addr, "0") == ""
			if port == wantPort && (wild || addr == wantAddr) {
				found = append(found, Bound{Inode: fields[9], Wild: wild})
			}
		}
		f.Close()
	}
	return found, ok
}

// procAddr is a in the form of /proc/net/udp: 32-bit words, each in the machine's byte order.
func procAddr(a netip.Addr) string {
	var s strings.Builder
	for b := a.AsSlice(); len(b) > 0; b = b[4:] {
		fmt.Fprintf(&s, "%08X", binary.NativeEndian.Uint32(b))
	}
	return s.String()
}

// comingOrGoing tells whether those who hold the port of a group may be its own processes, though none of them leads or has a lane: one
// that ends closes its sockets one by one, and one that has just joined has no lane yet. A group has many sockets, a stranger one; and
// none at all is left of processes that have ended meanwhile.
func (k Key) comingOrGoing() bool {
	found, ok := BoundTo(netip.AddrPortFrom(k.Addr, k.Port))
	for _, b := range found {
		ok = ok && !b.Wild && b.Owned()
	}
	return ok && len(found) != 1
}

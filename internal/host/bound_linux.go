package host

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// A Bound is a UDP socket of this network namespace, as /proc/net shows it.
type Bound struct {
	Inode string // noInode: a socket of the kernel itself
	Wild  bool   // bound to all addresses
}

const noInode = "0"

// Owned reports whether a process can have the socket open.
func (b Bound) Owned() bool { return b.Inode != noInode }

// BoundTo lists the sockets that hold a port at the address of at or at all addresses. An IPv6 socket can hold an IPv4
// address, but not the reverse. The list has sockets of all zones, which /proc/net does not show. ok is false if
// /proc/net cannot be read.
//
// The kernel gives /proc/net out in parts and finds its place again by counting sockets: while others are opened and
// closed, it can leave out a socket or show it twice. BoundTo therefore reads twice and lists each socket once. A
// socket that is left out of both readings is missing.
func BoundTo(at netip.AddrPort) (found []Bound, ok bool) {
	files := map[string]string{"/proc/net/udp6": procAddr(netip.AddrFrom16(at.Addr().As16()))}
	if at.Addr().Is4() {
		files["/proc/net/udp"] = procAddr(at.Addr())
	}
	port := fmt.Sprintf("%04X", at.Port())
	for range 2 {
		for name, addr := range files {
			read, err := boundIn(name, addr, port)
			for _, b := range read {
				if !slices.Contains(found, b) {
					found = append(found, b)
				}
			}
			ok = ok || err == nil
		}
	}
	return found, ok
}

// boundIn lists the sockets in one file of /proc/net that hold a port at an address, both in the form of the file, or
// at all addresses.
func boundIn(name, wantAddr, wantPort string) (found []Bound, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
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
	return found, nil
}

// procAddr returns a in the form of /proc/net/udp: 32-bit words, each in the byte order of the machine.
func procAddr(a netip.Addr) string {
	var s strings.Builder
	for b := a.AsSlice(); len(b) > 0; b = b[4:] {
		fmt.Fprintf(&s, "%08X", binary.NativeEndian.Uint32(b))
	}
	return s.String()
}

// maybeGroup reports whether the sockets at the port of a group may belong to its own processes although none of them
// leads: a process that ends closes its sockets one by one. A group has many sockets, another program has one, and
// processes that have ended meanwhile leave none. A verbena serve with another VERBENA_RUN is another program.
func (k Key) maybeGroup() bool {
	if k.servedElsewhere() {
		return false
	}
	found, ok := BoundTo(netip.AddrPortFrom(k.Addr, k.Port))
	for _, b := range found {
		ok = ok && !b.Wild && b.Owned()
	}
	return ok && len(found) != 1
}

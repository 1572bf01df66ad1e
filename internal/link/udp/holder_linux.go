package udp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// portHolder says, as far as /proc shows it to us, who has bound a UDP port so that at cannot be bound,
// and what to do.
func portHolder(at netip.AddrPort) string {
	for range holderLooks {
		for inode := range boundInodes(at) {
			if who := inodeOwner(inode); who != "" {
				return who + "; stop it, or use another address (VERBENA_DEVICES=NAME=ADDR)"
			}
		}
	}
	_, err := os.Stat("/sys/module/rdma_rxe")
	return hiddenHolder(rxeDevices(), err == nil)
}

// hiddenHolder says who may have the port when no process that we can see has it, given the soft-RoCE devices and whether their module is
// loaded. The module has the port at all addresses from its loading on (seen with Linux 6.1), so neither another address nor deleting
// its devices helps.
func hiddenHolder(rxe []string, loaded bool) string {
	if len(rxe) == 0 && !loaded {
		return "another user's program; stop it, or use another address (VERBENA_DEVICES=NAME=ADDR) or network namespace"
	}
	remove := "modprobe -r rdma_rxe"
	for _, name := range rxe {
		remove = "rdma link delete " + name + "; " + remove
	}
	return "rdma_rxe, which has it at all addresses while its module is loaded, or by another user's program; remove it (" + remove +
		"), or use another network namespace"
}

// holderLooks is how often /proc is read: while other sockets and processes come and go, the kernel may leave some out.
const holderLooks = 4

// boundInodes are the inodes of the UDP sockets of this network namespace that hold the
// port at at's address or at all addresses.
func boundInodes(at netip.AddrPort) map[string]bool {
	found := map[string]bool{}
	for _, name := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// sl local_address rem_address st queues timer retransmits uid timeout inode ...
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[9] == "0" {
				continue
			}
			addr, port, _ := strings.Cut(fields[1], ":")
			if port == fmt.Sprintf("%04X", at.Port()) && (addr == procAddr(at.Addr()) || strings.Trim(addr, "0") == "") {
				found[fields[9]] = true
			}
		}
		f.Close()
	}
	return found
}

// procAddr is a in the form of /proc/net/udp: 32-bit words, each in the machine's byte order.
func procAddr(a netip.Addr) string {
	var s strings.Builder
	for b := a.AsSlice(); len(b) > 0; b = b[4:] {
		fmt.Fprintf(&s, "%08X", binary.NativeEndian.Uint32(b))
	}
	return s.String()
}

// inodeOwner names the process that has the socket open, if it is one that we may look at.
func inodeOwner(inode string) string {
	want := "socket:[" + inode + "]"
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != want {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		if pid == fmt.Sprint(os.Getpid()) {
			return "this process"
		}
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(comm)))
	}
	return ""
}

// rxeDevices names the soft-RoCE devices that the kernel shows.
func rxeDevices() []string {
	devs, _ := filepath.Glob("/sys/class/infiniband/*")
	var names []string
	for _, d := range devs {
		desc, _ := os.ReadFile(d + "/node_desc")
		_, err := os.Stat(d + "/parent") // rdma_rxe alone has this attribute
		if err == nil || strings.HasPrefix(string(desc), "rxe") {
			names = append(names, filepath.Base(d))
		}
	}
	return names
}

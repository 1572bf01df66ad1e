package udp

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/verbena-rdma/verbena/internal/host"
)

// portOwner describes the owner of a UDP port that prevents binding at, as far as /proc shows it to this process, and
// the remedy.
func portOwner(at netip.AddrPort) string {
	for range ownerReads {
		found, _ := host.BoundTo(at)
		for _, b := range found {
			if !b.Owned() {
				continue
			}
			if who := inodeOwner(b.Inode); who != "" {
				return who + "; stop it, or use another address (VERBENA_DEVICES=NAME=ADDR)"
			}
		}
	}
	_, err := os.Stat("/sys/module/rdma_rxe")
	return hiddenOwner(rxeDevices(), err == nil)
}

// hidden is a program whose descriptors this process may not read: of another user, or with rights that it lacks.
const hidden = "a program that this process may not see (as root: ss -ulnp sport = :4791)"

// hiddenOwner describes the possible owners of the port if no visible process has it, given the soft-RoCE devices and
// whether their module is loaded. The module holds the port at all addresses from its loading on (seen with Linux
// 6.1), so neither another address nor deleting its devices helps.
func hiddenOwner(rxe []string, loaded bool) string {
	if len(rxe) == 0 && !loaded {
		return hidden + "; stop it, or use another address (VERBENA_DEVICES=NAME=ADDR) or network namespace"
	}
	remove := "modprobe -r rdma_rxe"
	for _, name := range rxe {
		remove = "rdma link delete " + name + "; " + remove
	}
	return "rdma_rxe, which has it at all addresses while its module is loaded, or by " + hidden +
		"; remove it (" + remove + "), or use another network namespace"
}

// ownerReads is the number of times /proc is read: the list may be incomplete while other sockets are opened or
// closed.
const ownerReads = 4

// inodeOwner describes the process that has the socket open, if this process may read its descriptors.
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

// rxeDevices returns the names of the soft-RoCE devices that the kernel shows.
func rxeDevices() []string {
	devs, _ := filepath.Glob("/sys/class/infiniband/*")
	var names []string
	for _, d := range devs {
		desc, _ := os.ReadFile(d + "/node_desc")
		_, err := os.Stat(d + "/parent") // only rdma_rxe has this attribute
		if err == nil || strings.HasPrefix(string(desc), "rxe") {
			names = append(names, filepath.Base(d))
		}
	}
	return names
}

package udp

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/printable"
)

// portOwner describes the owners of a UDP port that prevent binding at, as far as /proc shows them to this process, and
// the remedy: that of a program, or of a verbena serve that starts.
func portOwner(at netip.AddrPort, serves bool) string {
	before := fmt.Sprintf("; end the programs that use %v, and start this one before them", at.Addr())
	for range ownerReads {
		all := owners(at)
		i := slices.IndexFunc(all, func(o owner) bool { return o.run != "" })
		switch {
		case i >= 0 && serves:
			return fmt.Sprintf("verbena serve in %s, %v; stop that one to start this one", all[i].run, all[i])
		case i >= 0:
			return all[i].serves()
		case len(all) > 0 && serves:
			return names(all) + before
		case len(all) > 0:
			return names(all) + instead(len(all))
		}
	}
	_, err := os.Stat("/sys/module/rdma_rxe")
	rxe := rxeDevices()
	if serves && len(rxe) == 0 && err != nil {
		return hidden + before
	}
	return hiddenOwner(rxe, err == nil)
}

// instead is the remedy of a program for a port that n processes have.
func instead(n int) string {
	them := "it"
	if n > 1 {
		them = "them"
	}
	return "; stop " + them + ", or use another address (VERBENA_DEVICES=NAME=ADDR)"
}

// An owner is a process that has a socket at the port.
type owner struct {
	pid, name string
	run, dir  string // of a verbena serve: its VERBENA_RUN, and the descriptor in /proc of its directory there
}

func (o owner) String() string {
	if o.pid == fmt.Sprint(os.Getpid()) {
		return "this process"
	}
	return fmt.Sprintf("process %s (%s)", o.pid, o.name)
}

// serves describes a verbena serve, and why this process is not a member of it. Its members have sockets at the port
// too, but to stop one of them does not free the port.
func (o owner) serves() string {
	who := fmt.Sprintf("verbena serve in %s, %v, ", o.run, o)
	theirs, err1 := os.Stat(o.dir)
	ours, err2 := os.Stat(filepath.Join(host.RunDir(), filepath.Base(o.path())))
	if err1 == nil && err2 == nil && os.SameFile(theirs, ours) {
		return who + "which is starting or ending; try again"
	}
	return fmt.Sprintf("%swhile this process looks in %s; set VERBENA_RUN=%s here, or use another address "+
		"(VERBENA_DEVICES=NAME=ADDR); a container must mount the directory", who, host.RunDir(), o.run)
}

// path returns the path of the directory of a verbena serve; empty if it has ended.
func (o owner) path() string {
	path, _ := os.Readlink(o.dir)
	return path
}

// names lists processes.
func names(all []owner) string {
	const most = 3
	var list []string
	for _, o := range all[:min(len(all), most)] {
		list = append(list, o.String())
	}
	text := strings.Join(list, ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// owners lists the processes that have a socket at the port, of those whose descriptors this process may read.
func owners(at netip.AddrPort) (all []owner) {
	found, _ := host.BoundTo(at)
	sockets := map[string]bool{}
	for _, b := range found {
		if b.Owned() {
			sockets["socket:["+b.Inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return nil
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		o, has := owner{pid: filepath.Base(proc)}, false
		fds, _ := filepath.Glob(proc + "/fd/*")
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if err != nil {
				continue
			}
			run := filepath.Dir(target)
			if own := o.pid == fmt.Sprint(os.Getpid()) && run == host.RunDir(); own {
				continue // of the attempt that has just failed
			}
			if has = has || sockets[target]; host.IsServeDir(target, at) {
				o.run, o.dir = run, fd
			}
		}
		if has {
			comm, _ := os.ReadFile(proc + "/comm")
			o.name = printable.Text(strings.TrimSpace(string(comm)))
			all = append(all, o)
		}
	}
	return all
}

// hidden is a program whose descriptors this process may not read: of another user, or with rights that it lacks.
const hidden = "a program that this process may not see (as root: ss -ulnp sport = :4791)"

// hiddenOwner describes the possible owners of the port if no visible process has it, given the soft-RoCE devices and
// whether their module is loaded. The module holds the port at all addresses from its loading on (seen with Linux
// 6.1), so neither another address nor deleting its devices helps.
func hiddenOwner(rxe []string, loaded bool) string {
	if len(rxe) == 0 && !loaded {
		return hidden + "; stop it, or use another address (VERBENA_DEVICES=NAME=ADDR) or network namespace; if it is " +
			"verbena serve, this process needs its VERBENA_RUN, and looks in " + host.RunDir()
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

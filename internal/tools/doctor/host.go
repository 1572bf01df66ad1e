package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/tools/portrate"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// host checks this host: its devices and the system's settings for them.
func (r *report) host() {
	list, err := verbs.Devices()
	r.devices(list, err)
	if err == nil {
		r.pkeys(list)
	}
	r.buffers("/proc/sys/net/core")
	r.firewall()
	r.kernel("/sys/class/infiniband")
	r.adapters("/sys/class/infiniband", "/dev/infiniband")
	r.switches()
	r.unknown(os.Environ())
}

func (r *report) devices(list []*verbs.Device, err error) {
	if err != nil {
		advice := "correct the variable, or unset it"
		switch text := err.Error(); {
		case strings.Contains(text, "make build-hw"):
			advice = "make build-hw, and use bin/verbena-hw; or unset VERBENA_PROVIDER"
		case strings.Contains(text, "VERBENA_DEVICES"):
			advice = "correct VERBENA_DEVICES, or unset it for one device on each interface that is up and has an address"
		}
		r.add(bad, "devices", err.Error(), advice)
	}
	if len(list) == 0 && err == nil {
		r.add(bad, "devices", "no device: no interface is up and has an address",
			"ip link set dev INTERFACE up; ip addr add ADDRESS/LENGTH dev INTERFACE")
	}
	for _, d := range list {
		r.device(d)
	}
}

// device opens a device and its ports for a moment.
func (r *report) device(d *verbs.Device) {
	what := "device " + d.Name()
	ctx, err := d.Open()
	if err != nil {
		r.add(bad, what, err.Error(), "")
		return
	}
	defer ctx.Close()
	a, err := ctx.QueryDevice()
	if err != nil {
		r.add(bad, what, err.Error(), "")
		return
	}
	table, err := ctx.QueryGIDTable()
	if err != nil {
		r.add(bad, what, err.Error(), "")
		return
	}
	take := sync.OnceValue(func() error { return takePorts(ctx) })
	for n := uint8(1); n <= a.PhysPortCnt; n++ {
		of := what
		if a.PhysPortCnt > 1 {
			of = fmt.Sprintf("%s port %d", what, n)
		}
		port, err := ctx.QueryPort(n)
		if err != nil {
			r.add(bad, of, err.Error(), "")
			continue
		}
		own := slices.DeleteFunc(slices.Clone(table), func(e verbs.GIDEntry) bool { return e.Port != n })
		overTCP := d.TransportType() == verbs.TransportIWARP
		r.port(of, interfaceOf(d, int(n), table), &port, own, overTCP, take)
	}
}

// interfaceOf returns the network interface of a port, or a word for it.
func interfaceOf(d *verbs.Device, port int, gids []verbs.GIDEntry) (iface string) {
	if port == 1 {
		iface = d.Interface()
	}
	return cmp.Or(iface, portrate.Interface(gids, port), "INTERFACE")
}

// port checks a device's port. take opens it for a moment. Over TCP the size of packets is the system's affair.
func (r *report) port(what, iface string, port *verbs.PortAttr, table []verbs.GIDEntry, overTCP bool,
	take func() error) {
	if port.State != verbs.PortActive {
		r.add(bad, what, fmt.Sprintf("its port is %v", port.State), "ip link set dev "+iface+" up")
		return
	}
	kind, addrs := "GIDs", gidAddrs(table)
	if len(addrs) == 0 && overTCP { // the only GID of an iWARP adapter is made of its MAC address
		kind, addrs = "addresses", interfaceAddrs(iface)
	}
	if len(addrs) == 0 {
		r.add(note, what, "it has no address besides the default GID, so no peer is reachable through it",
			"ip addr add ADDRESS/LENGTH dev "+iface)
		return
	}
	if ifi, err := net.InterfaceByName(iface); err == nil && !overTCP && r.smallMTU(what, iface, ifi.MTU) {
		return
	}
	if err := take(); err != nil {
		r.add(bad, what, err.Error(), portAdvice(err))
		return
	}
	l, found := good, fmt.Sprintf("its port works, path MTU %d, %s %s", port.ActiveMTU.Bytes(), kind,
		strings.Join(addrs, ", "))
	typ := ""
	if port.ActiveMTU < verbs.MTU4096 && iface != "lo" && !overTCP {
		l = note
		typ = "fewer, larger packets cost less; if the whole network can: ip link set dev " + iface + " mtu 4200"
	}
	r.add(l, what, found, typ)
}

// gidAddrs lists the addresses of a table of GIDs, without the default GID.
func gidAddrs(table []verbs.GIDEntry) (addrs []string) {
	for _, e := range table {
		if e.Index > 0 {
			addrs = append(addrs, fmt.Sprintf("%d: %v", e.Index, e.GID.Addr()))
		}
	}
	return addrs
}

// interfaceAddrs lists the addresses of a network interface, without link-local ones.
func interfaceAddrs(name string) (addrs []string) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	list, _ := ifi.Addrs()
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			addrs = append(addrs, n.IP.String())
		}
	}
	return addrs
}

// smallMTU reports an interface that cannot send the packets of any path MTU.
func (r *report) smallMTU(what, iface string, mtu int) bool {
	need := verbs.MTU256.Bytes() + wire.RoCEv2Headers
	if mtu >= need {
		return false
	}
	r.add(bad, what, fmt.Sprintf("the MTU of interface %s is %d bytes: must be at least %d, for the smallest path MTU, "+
		"%d, and headers", iface, mtu, need, verbs.MTU256.Bytes()), "ip link set dev "+iface+" mtu 1500")
	return true
}

// takePorts creates a QP, for which the device opens the sockets of all ports.
func takePorts(ctx *verbs.Context) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	cq, err := ctx.CreateCQ(1, nil)
	if err != nil {
		return err
	}
	defer cq.Close()
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxRecvWR: 1, MaxRecvSGE: 1}}) // siw refuses a queue of no length
	if err != nil {
		return err
	}
	return qp.Close()
}

// asRoot is the condition of a command that needs root's rights, empty for root.
func asRoot(root bool) string {
	if root {
		return ""
	}
	return ", as root"
}

// portAdvice returns the remedy for UDP port 4791 being unavailable.
func portAdvice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "ss -ulpn 'sport = 4791' shows the owner; if it is verbena serve: set VERBENA_RUN as it has; if it is the " +
			"kernel's soft-RoCE, which occupies the port on every address: rdma link delete NAME; modprobe -r rdma_rxe; " +
			"otherwise name other addresses in VERBENA_DEVICES"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ETOOMANYREFS):
		return "a process needs up to 40 descriptors for one address, and 21 for each further one: ulimit -n 1024; for a " +
			"service, LimitNOFILE= of systemd"
	case errors.Is(err, syscall.ETIMEDOUT):
		return "kill -CONT PID continues it, kill PID ends it; ps -o pid,stat,comm -p PID shows T for a stopped process"
	case errors.Is(err, syscall.EACCES):
		if e := (*host.NotAdmittedError)(nil); errors.As(err, &e) && e.Group != "" {
			return "become one of them: usermod -aG " + e.Group + " " + userName() + ", then log in again"
		}
		return "processes of another user own it; start before them" + asRoot(os.Geteuid() == 0) +
			": verbena serve --group GROUP"
	case errors.Is(err, syscall.EPERM):
		return "if the directory is that of verbena serve: chmod go-w DIRECTORY; otherwise unset VERBENA_RUN"
	case strings.Contains(err.Error(), "VERBENA_FAULT"):
		return "correct VERBENA_FAULT, or unset it"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "ip addr shows whether the interface still has the address"
	}
	return ""
}

// wantBuffer is the largest socket buffer that a device uses, in bytes.
const wantBuffer = 4 << 20

// buffers checks the limits of socket buffers in dir, Linux's folder for them.
func (r *report) buffers(dir string) {
	for _, name := range []string{"rmem_max", "wmem_max"} {
		b, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			continue // other systems have other limits
		}
		switch n, err := strconv.Atoi(strings.TrimSpace(string(b))); {
		case err != nil:
			r.add(note, "net.core."+name, err.Error(), "")
		case n < wantBuffer:
			r.add(note, "net.core."+name,
				fmt.Sprintf("%d bytes: bursts of large messages may lose packets, which are then retransmitted", n),
				fmt.Sprintf("sysctl -w net.core.%s=%d", name, wantBuffer))
		default:
			r.add(good, "net.core."+name, fmt.Sprintf("%d bytes", n), "")
		}
	}
}

// switches reports features that environment variables disable.
func (r *report) switches() {
	for name, means := range map[string]string{
		"VERBENA_SHM":        "processes of this host use UDP",
		"VERBENA_SHM_DIRECT": "memory is copied rather than read by the peer",
		"VERBENA_UDP_GSO":    "no segmentation offload for sending",
		"VERBENA_UDP_GRO":    "no segmentation offload for receiving",
		"VERBENA_UDP_LEND":   "the kernel copies UDP packets to processes of this host",
	} {
		if os.Getenv(name) == "0" {
			r.add(note, name+"=0", means, "unset "+name)
		}
	}
	if os.Getenv("VERBENA_UDP") == "plain" {
		r.add(note, "VERBENA_UDP=plain", "ordinary sockets: slower, and processes cannot share an address",
			"unset VERBENA_UDP")
	}
	if f := os.Getenv("VERBENA_FAULT"); f != "" {
		r.add(note, "VERBENA_FAULT="+f, "devices inject these faults into what they send", "unset VERBENA_FAULT")
	}
}

// userName is the name of the process's user.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

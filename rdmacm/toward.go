package rdmacm

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/verbs"
)

// localPath is the device and the local address for traffic to a peer. Finding them takes many system calls, so the
// result is kept for pathAge: a program that makes many connections to one peer looks once.
type localPath struct {
	dev   *device
	local netip.Addr
	until time.Time
}

// pathKey says what a localPath depends on: the peer, and what selects the devices.
type pathKey struct {
	peer      netip.Addr
	ps        PortSpace
	transport string // the value of driver.EnvTransport
}

const (
	pathAge  = 100 * time.Millisecond
	maxPaths = 1024
)

func init() {
	seam.Toward = func(host, peer any) (any, error) {
		h := host.(*Host)
		h.mu.Lock()
		defer h.mu.Unlock()
		_, local, err := h.toward(PSUDP, peer.(netip.Addr))
		return local, err
	}
}

// toward finds the device of a port space and the local address for traffic to a peer, and starts the device: the one
// that has the source address of the system's route, or else the first that can reach the peer.
//
// +checklocks:h.mu
func (h *Host) toward(ps PortSpace, peer netip.Addr) (*device, netip.Addr, error) {
	key := pathKey{peer, ps, os.Getenv(driver.EnvTransport)}
	now := time.Now()
	last := h.paths[key]
	if last.dev != nil && now.Before(last.until) && !last.dev.gone && slices.Contains(h.devices, last.dev) {
		return last.dev, last.local, nil
	}
	devices, err := h.choices(ps)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	d, local, err := h.find(devices, peer)
	if err != nil {
		return nil, local, err
	}
	if d != last.dev {
		d.chosen(local, peer)
	}
	if h.paths == nil || len(h.paths) >= maxPaths {
		h.paths = map[pathKey]localPath{}
	}
	h.paths[key] = localPath{d, local, now.Add(pathAge)}
	return d, local, nil
}

// find is toward without the kept results.
//
// +checklocks:h.mu
func (h *Host) find(devices []*device, peer netip.Addr) (*device, netip.Addr, error) {
	peer = sysroute.Named(peer)
	zone := peer.Zone()
	source, routeErr := sysroute.Source(peer, "")
	if routeErr == nil {
		if d, _ := ownerOf(devices, source.WithZone(zone)); d != nil {
			return d, source, d.start()
		}
	}
	iface := zone
	if zone == "" {
		iface = sysroute.Interface(source)
	}
	for _, d := range devices {
		if on := d.vdev.Interface(); d.gone || on != "" && (routeErr != nil || iface != on) {
			continue
		}
		if src := d.selectSource(peer); src.IsValid() {
			return d, src, d.start()
		}
	}
	if routeErr != nil {
		return nil, netip.Addr{}, routeErr
	}
	return nil, netip.Addr{}, &Error{
		Op: "resolve_addr", Errno: syscall.ENODEV, Detail: "no RDMA device has a route to " + peer.String() +
			", which leaves from " + source.String(),
	}
}

// selectSource is the local address for traffic to a peer, of the first port that can reach it; invalid if none can.
func (d *device) selectSource(peer netip.Addr) netip.Addr {
	drv := driver.Of[verbs.DriverContext](d.ctx)
	for port := uint8(firstPort); port <= d.attr.PhysPortCnt; port++ {
		c, err := drv.SelectGID(port, peer)
		if src := c.GID.Addr(); err == nil && src.IsLoopback() == peer.IsLoopback() {
			return src
		}
	}
	return netip.Addr{}
}

// chosen reports that the device is used for the traffic to a peer.
func (d *device) chosen(local, peer netip.Addr) {
	if !observe.On() {
		return
	}
	observe.Emit(observe.Event{Name: observe.Device, Device: d.vdev.Name(), Local: netip.AddrPortFrom(local, 0),
		Peer: netip.AddrPortFrom(peer, 0), Reason: fmt.Sprintf("the route to %v leaves from %v; %s", peer, local,
			driver.Why(d.vdev))})
}

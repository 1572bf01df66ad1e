package rdmacm

import (
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// way is how to reach a peer: by which device, from which address. Finding it out takes several calls of the system, so it is
// remembered for a moment: a program that makes many connections to one peer asks once.
type way struct {
	dev   *device
	local netip.Addr
	until time.Time
}

const (
	wayAge  = 100 * time.Millisecond
	maxWays = 1024
)

// toward finds the device and the local address for traffic to a peer, and starts the device: the one that the system's route
// leaves from, or else the first that can reach the peer. h.mu is held.
func (h *Host) toward(peer netip.Addr) (*device, netip.Addr, error) {
	now := time.Now()
	if w, ok := h.ways[peer]; ok && now.Before(w.until) && !w.dev.gone {
		return w.dev, w.local, nil
	}
	d, local, err := h.find(peer)
	if err != nil {
		return nil, local, err
	}
	if h.ways == nil || len(h.ways) >= maxWays {
		h.ways = map[netip.Addr]way{}
	}
	h.ways[peer] = way{d, local, now.Add(wayAge)}
	return d, local, nil
}

func (h *Host) find(peer netip.Addr) (*device, netip.Addr, error) {
	devices, err := h.scan()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	source, routeErr := routeSource(peer)
	if routeErr == nil {
		for _, d := range devices {
			if !d.gone && d.gidIndex(source) >= 0 {
				return d, source, d.start()
			}
		}
	}
	iface := interfaceOf(source)
	for _, d := range devices {
		if on := d.vdev.Interface(); d.gone || on != "" && (routeErr != nil || iface != on) {
			continue
		}
		c, err := d.ctx.SelectGID(peer)
		if src := c.GID.Addr(); err == nil && src.IsLoopback() == peer.IsLoopback() {
			return d, src, d.start()
		}
	}
	if routeErr != nil {
		return nil, netip.Addr{}, routeErr
	}
	return nil, netip.Addr{}, &Error{
		Op: "resolve_addr", Errno: syscall.ENODEV, Detail: "no RDMA device has a route to " + peer.String() + ", which leaves from " + source.String(),
	}
}

// routeSource asks the system which address it would send to peer from.
func routeSource(peer netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, wire.Port)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// interfaceOf is the interface that has an address, empty if none does.
func interfaceOf(source netip.Addr) string {
	if !source.IsValid() {
		return ""
	}
	ifs, _ := net.Interfaces()
	for i := range ifs {
		addrs, _ := ifs[i].Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().WithZone("") == source {
				return ifs[i].Name
			}
		}
	}
	return ""
}

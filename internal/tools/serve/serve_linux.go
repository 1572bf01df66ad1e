package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// serve shares the devices until a signal comes.
func (o *options) serve(env *tool.Env, f *tool.Flags) int {
	perm, err := strconv.ParseUint(o.mode, 8, 9)
	if err != nil {
		return f.Misused(fmt.Sprintf("mode %q: must be three octal digits", o.mode))
	}
	gid, err := groupID(o.group)
	if err != nil {
		return env.Failf("%v", err)
	}
	devices, err := choose(o.devices)
	if err != nil {
		return env.Failf("%v", err)
	}
	c, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &server{env: env, with: host.Sharing{Mode: fs.FileMode(perm), GID: gid, UID: -1}}
	if s.as, err = accountOf(o.user); err != nil {
		return env.Failf("%v", err)
	}
	if s.as != nil {
		s.with.UID = s.as.uid
	}
	if err := s.run(c, devices); err != nil {
		return env.Failf("%v", err)
	}
	return 0
}

// groupID returns the number of a user group given by name or number; -1 for an empty name.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("--group %q: must be a group of this host, or its number: %w", name, err)
	}
	return strconv.Atoi(g.Gid)
}

func choose(names []string) ([]*verbs.Device, error) {
	all, err := verbs.Devices()
	if err != nil || len(names) == 0 {
		return all, err
	}
	var chosen []*verbs.Device
	for _, name := range names {
		i := slices.IndexFunc(all, func(d *verbs.Device) bool { return d.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("no device %q; verbena ibv_devices lists the devices", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// server shares devices.
type server struct {
	env  *tool.Env
	with host.Sharing
	as   *account // the user to change to; nil keeps the current one
}

// run shares the devices until c is done, or one of them fails.
func (s *server) run(c context.Context, devices []*verbs.Device) (err error) {
	if len(devices) == 0 {
		return errors.New("no device")
	}
	c, cancel := context.WithCancel(c)
	defer cancel()
	var shared []*device
	defer func() {
		for _, d := range shared {
			err = errors.Join(err, d.close())
		}
	}()
	for _, dev := range devices {
		d, err := s.open(dev)
		if err != nil {
			return fmt.Errorf("%s: %w", dev.Name(), err)
		}
		shared = append(shared, d)
	}
	if err := s.as.become(); err != nil {
		return err
	}
	var wait sync.WaitGroup
	errs := make([]error, len(shared))
	for i, d := range shared {
		for _, at := range d.servers {
			if err := at.Start(); err != nil {
				return fmt.Errorf("%s: %w", d.Name(), err)
			}
		}
		fmt.Fprintf(s.env.Stdout, "%s: %s: shared in %s, mode %04o\n", d.Name(), d.addrs(), host.RunDir(), s.with.Mode)
		wait.Go(func() {
			if errs[i] = s.watch(c, d); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", d.Name(), errs[i])
				cancel()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// A device is one that is shared: its context is there for the events.
type device struct {
	*verbs.Device
	ctx     *verbs.Context
	keys    []host.Key
	servers []*udp.Server
}

// open takes the addresses of a device.
func (s *server) open(dev *verbs.Device) (*device, error) {
	d := &device{Device: dev}
	if err := s.take(d); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// take is open for a device that the caller closes after an error.
func (s *server) take(d *device) (err error) {
	if d.ctx, err = d.Open(); err != nil {
		return err
	}
	keys, netdevs, err := keysOf(d.ctx)
	if err != nil {
		return err
	}
	for i, k := range keys {
		at, err := udp.Serve(udp.Config{Interface: netdevs[i], Addrs: []netip.Addr{k.Addr}, Port: k.Port,
			Screen: cm.NewForeign}, s.with)
		if errors.Is(err, syscall.EMFILE) {
			err = fmt.Errorf("%w: each address needs %d: raise the limit of descriptors: ulimit -n 4096, or LimitNOFILE= "+
				"of systemd", err, host.Slots+6)
		}
		if err != nil {
			return err
		}
		d.keys, d.servers = append(d.keys, k), append(d.servers, at)
	}
	return nil
}

func (d *device) addrs() string {
	var all []string
	for _, k := range d.keys {
		all = append(all, k.Addr.String())
	}
	return strings.Join(all, ", ")
}

func (d *device) close() error {
	var errs []error
	for _, at := range d.servers {
		errs = append(errs, at.Close())
	}
	if d.ctx != nil {
		errs = append(errs, d.ctx.Close())
	}
	return errors.Join(errs...)
}

// errRemoved: the interface is gone. Calls of a removed device return EIO, some before its event is there.
var errRemoved = errors.New("the device was removed")

// watch waits for the end, and reports addresses that are not shared because they were added too late.
func (s *server) watch(c context.Context, d *device) error {
	err := s.events(c, d)
	if errors.Is(err, syscall.EIO) {
		return errRemoved
	}
	return err
}

// events is watch with the errors of the calls.
func (s *server) events(c context.Context, d *device) error {
	for {
		ev, err := d.ctx.GetAsyncEvent(c)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		what := ev.Type
		ev.Ack()
		switch what {
		case verbs.EventDeviceFatal:
			return errRemoved
		case verbs.EventGIDChange:
			now, _, err := keysOf(d.ctx)
			if err != nil {
				return err
			}
			for _, k := range now {
				if !slices.Contains(d.keys, k) {
					fmt.Fprintf(s.env.Stderr, "%s: new address %v is shared only by processes of one user; to share it "+
						"between users, restart this program while no other uses the device\n", d.Name(), k.Addr)
				}
			}
		}
	}
}

// keysOf returns the groups of a device, one for each of its addresses, and the network interface of each.
func keysOf(ctx *verbs.Context) (keys []host.Key, netdevs []string, err error) {
	table, err := ctx.QueryGIDTable()
	if err != nil {
		return nil, nil, err
	}
	for _, g := range table {
		k := udp.KeyOf(wire.Port, g.GID.Addr(), indexOf(g.NetDev, g.GID.Addr()))
		if !slices.Contains(keys, k) && usable(k.Addr, g.NetDev) {
			keys, netdevs = append(keys, k), append(netdevs, g.NetDev)
		}
	}
	return keys, netdevs, nil
}

// indexOf is the number of a network interface, of which only addresses of one link depend.
func indexOf(name string, a netip.Addr) int {
	if !a.IsLinkLocalUnicast() {
		return 0
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	return i.Index
}

// usable reports whether a GID is an address of this machine. The GID derived from the hardware address may not be one.
func usable(a netip.Addr, netdev string) bool {
	if a.IsLinkLocalUnicast() && a.Is6() {
		a = a.WithZone(netdev)
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return false
	}
	return c.Close() == nil
}

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

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options]")
	only := f.StringSliceP("ib-dev", "d", nil, "share these devices (default: all)")
	group := f.StringP("group", "g", "", "let this group of users attach (default: the own group)")
	mode := f.StringP("mode", "m", "0770", "who may attach, as permissions of a folder: owner, group, others")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return f.Misused("there are no arguments")
	}
	perm, err := strconv.ParseUint(*mode, 8, 9)
	if err != nil {
		return f.Misused(fmt.Sprintf("mode %q: not three octal digits", *mode))
	}
	gid, err := groupID(*group)
	if err != nil {
		return env.Failf("%v", err)
	}
	devices, err := choose(*only)
	if err != nil {
		return env.Failf("%v", err)
	}
	c, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &server{env: env, mode: fs.FileMode(perm), gid: gid}
	if err := s.run(c, devices); err != nil {
		return env.Failf("%v", err)
	}
	return 0
}

// groupID is the number of a group of users, by name or number; -1 if there is none to set.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
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
			return nil, fmt.Errorf("no device is called %q; see ibv_devices", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// server holds devices open.
type server struct {
	env  *tool.Env
	mode fs.FileMode
	gid  int
}

// run shares the devices until c is done, or one of them fails.
func (s *server) run(c context.Context, devices []*verbs.Device) error {
	if len(devices) == 0 {
		return errors.New("there is no device")
	}
	c, cancel := context.WithCancel(c)
	defer cancel()
	var wait sync.WaitGroup
	errs := make([]error, len(devices))
	for i, d := range devices {
		wait.Go(func() {
			if errs[i] = s.share(c, d); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", d.Name(), errs[i])
				cancel()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// share shares one device.
func (s *server) share(c context.Context, d *verbs.Device) (err error) {
	ctx, err := d.Open()
	if err != nil {
		return err
	}
	keys, err := keysOf(ctx)
	if err == nil {
		err = s.hold(c, d, ctx, keys)
	}
	err = errors.Join(err, ctx.Close())
	for _, k := range keys {
		host.Unshare(k) // if nobody else is there; the others go on without us
	}
	return err
}

// hold makes the folders, and takes part at the addresses until c is done.
func (s *server) hold(c context.Context, d *verbs.Device, ctx *verbs.Context, keys []host.Key) error {
	var addrs []string
	var root string
	for _, k := range keys {
		dir, err := host.Share(k, s.mode, s.gid)
		if err != nil {
			return err
		}
		root = dir[:strings.LastIndexByte(dir, '/')]
		addrs = append(addrs, k.Addr.String())
	}
	closeQP, err := openQP(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.env.Stdout, "%s: %s: shared in %s, mode %04o\n", d.Name(), strings.Join(addrs, ", "), root, s.mode)
	return errors.Join(s.watch(c, d, ctx, keys), closeQP())
}

// openQP makes a QP, since a device takes its addresses with the first one.
func openQP(ctx *verbs.Context) (closer func() error, err error) {
	var closers []func() error
	all := func() error {
		var errs []error
		for _, c := range slices.Backward(closers) {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, all())
		}
	}()
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	closers = append(closers, pd.Close)
	cq, err := ctx.CreateCQ(1, nil)
	if err != nil {
		return nil, err
	}
	closers = append(closers, cq.Close)
	qp, err := pd.CreateQP(&verbs.QPInitAttr{
		SendCQ: cq, RecvCQ: cq, Type: verbs.QPTypeUD, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	closers = append(closers, qp.Close)
	return all, nil
}

// watch waits for the end, and says when an address is not shared because it came too late.
func (s *server) watch(c context.Context, d *verbs.Device, ctx *verbs.Context, keys []host.Key) error {
	for {
		ev, err := ctx.GetAsyncEvent(c)
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
			return errors.New("the device is gone")
		case verbs.EventGIDChange:
			now, err := keysOf(ctx)
			if err != nil {
				return err
			}
			for _, k := range now {
				if !slices.Contains(keys, k) {
					fmt.Fprintf(s.env.Stderr, "%s: %v has come: processes of one user share it; start this program again, "+
						"while no other uses the device, to let several\n", d.Name(), k.Addr)
				}
			}
		}
	}
}

// keysOf are the groups of a device: one for each of its addresses.
func keysOf(ctx *verbs.Context) (keys []host.Key, err error) {
	table, err := ctx.QueryGIDTable()
	if err != nil {
		return nil, err
	}
	for _, g := range table {
		k := udp.KeyOf(wire.Port, g.GID.Addr(), indexOf(g.NetDev, g.GID.Addr()))
		if !slices.Contains(keys, k) && usable(k.Addr, g.NetDev) {
			keys = append(keys, k)
		}
	}
	return keys, nil
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

// usable tells whether a GID is an address of this machine; that of the hardware address may not be.
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

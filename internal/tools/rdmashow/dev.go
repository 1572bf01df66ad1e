package rdmashow

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/printable"
)

// devs is "rdma dev": this machine's devices.
func (v *viewer) devs(words []string) error {
	return pick("dev command", words, []command{{"show", v.showDevs}, {"list", v.showDevs}})
}

func (v *viewer) showDevs(words []string) error {
	return v.eachPlace(words, "dev show takes one DEV", func(d device) error {
		n, err := v.host.node(d.name)
		if err != nil {
			return err
		}
		r := row{head: fmt.Sprintf("%d: %s: ", d.index, printable.Text(d.name)), place: d.onDevice().place}
		r.add("node_type", n.kind)
		r.add("node_guid", n.guid)
		r.add("sys_image_guid", n.system)
		v.rows = append(v.rows, r)
		return nil
	})
}

// monitorEvery is the interval at which monitor looks at the devices: nothing tells it of a change.
const monitorEvery = 500 * time.Millisecond

// monitor prints changes of devices and ports until Ctrl-C.
func (v *viewer) monitor(words []string) error {
	if len(words) > 0 {
		return fmt.Errorf("unknown parameter %q; monitor takes none", words[0])
	}
	v.monitored = true
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return v.watch(ctx, v.out, monitorEvery)
}

// watch prints the changes between one look and the next.
func (v *viewer) watch(ctx context.Context, w io.Writer, every time.Duration) error {
	before, err := v.look()
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := v.look()
		if err != nil {
			return err
		}
		printChanges(w, before, now)
		before = now
	}
}

// look returns the ports of the devices.
func (v *viewer) look() (map[string][]port, error) {
	names, err := v.host.devices()
	if err != nil {
		return nil, err
	}
	ports := map[string][]port{}
	for _, name := range names {
		if p, err := v.host.ports(name); err == nil { // else it was removed meanwhile
			ports[name] = p
		}
	}
	return ports, nil
}

// printChanges prints one line for each change, with the names of events that iproute2 prints, and LINK for states.
func printChanges(w io.Writer, before, now map[string][]port) {
	names := map[string][]port{}
	maps.Copy(names, before)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, had := before[name]
		ports, has := now[name]
		text := printable.Text(name)
		switch {
		case !had:
			fmt.Fprintf(w, "[REGISTER]\tdev %s\n", text)
		case !has:
			fmt.Fprintf(w, "[UNREGISTER]\tdev %s\n", text)
		}
		for i, p := range ports {
			was := port{netdev: p.netdev}
			if i < len(old) {
				was = old[i]
			}
			printChange(w, text, i+1, was, p)
		}
	}
}

// printChange prints the changes of a port.
func printChange(w io.Writer, device string, number int, was, is port) {
	if was.netdev != is.netdev {
		fmt.Fprintf(w, "[NETDEV_ATTACH]\tdev %s port %d netdev %s\n", device, number, printable.Text(is.netdev))
	}
	if was.state != is.state || was.phys != is.phys {
		fmt.Fprintf(w, "[LINK]\tlink %s/%d state %s physical_state %s netdev %s\n", device, number, is.state, is.phys,
			printable.Text(is.netdev))
	}
}

package rdmashow

import "fmt"

// links is "rdma link": the ports of this machine's devices, open or not.
func (v *viewer) links(words []string, details bool) error {
	return pick("link command", words, []command{
		{"show", func(w []string) error { return v.showLinks(w, details) }},
		{"list", func(w []string) error { return v.showLinks(w, details) }},
	})
}

func (v *viewer) showLinks(words []string, details bool) error {
	return v.eachPlace(words, "link show takes one DEV/PORT", func(d device) error {
		ports, err := v.host.ports(d.name)
		if err != nil {
			return err
		}
		for i := range ports {
			if d.asked(i + 1) {
				v.rows = append(v.rows, d.link(i+1, &ports[i], details))
			}
		}
		return nil
	})
}

// link is the row of a port.
func (d *device) link(number int, of *port, details bool) row {
	r := d.onLink(number)
	r.add("state", of.state)
	r.add("physical_state", of.phys)
	if of.netdevIndex == 0 {
		return r
	}
	r.add("netdev", of.netdev)
	if details {
		r.add("netdev_index", of.netdevIndex)
	} else {
		r.add("netdev_index", jsonOnly(of.netdevIndex))
	}
	return r
}

// eachPlace calls f for each of this machine's devices that words, the parameters of a command, select. allowed is for
// the error if there are too many.
func (v *viewer) eachPlace(words []string, allowed string, f func(device) error) error {
	names, err := v.host.devices()
	if err != nil {
		return err
	}
	if len(words) > 1 {
		return fmt.Errorf("unknown parameter %q; %s", words[1], allowed)
	}
	p, err := parsePlace(append(words, "")[0], names)
	if err == nil {
		err = p.check(v.host)
	}
	if err != nil {
		return err
	}
	for i, name := range names {
		if !p.has(name) {
			continue
		}
		if err := f(device{index: i, name: name, port: p.port}); err != nil {
			return err
		}
	}
	return nil
}

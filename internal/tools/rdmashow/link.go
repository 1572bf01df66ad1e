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
	names, err := v.host.devices()
	if err != nil {
		return err
	}
	if len(words) > 1 {
		return fmt.Errorf("unknown parameter %q; link show takes one DEV/PORT", words[1])
	}
	p, err := parsePlace(append(words, "")[0], names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if !p.has(name) {
			continue
		}
		of, err := v.host.port(name)
		if err != nil {
			return err
		}
		d := device{index: i, name: name}
		r := d.onLink()
		r.add("state", of.state)
		r.add("physical_state", of.phys)
		if of.netdevIndex != 0 {
			r.add("netdev", of.netdev)
			if details {
				r.add("netdev_index", of.netdevIndex)
			} else {
				r.add("netdev_index", jsonOnly(of.netdevIndex))
			}
		}
		v.rows = append(v.rows, r)
	}
	return nil
}

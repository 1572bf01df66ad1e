package rdmashow

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/internal/printable"
)

// completer proposes words of a command line for a shell. After an unknown word or a failure there are no proposals: a
// completion has no place for an error.
type completer struct{ viewer }

// branch is a word of the grammar, with the proposals after it.
type branch struct {
	name string
	next func(words []string) []string
}

// proposals returns what can follow the words of a command line, without its options.
func proposals(h host, words []string) []string {
	c := &completer{viewer{host: h}}
	return after(words, []branch{
		{"dev", c.shown(c.devices)},
		{"link", c.shown(c.ports)},
		{"resource", c.shown(c.resources)},
		{"statistic", c.statistics},
		{"monitor", nothing},
	})
}

// after returns the names of the branches, or the proposals of the branch that the first word selects.
func after(words []string, branches []branch) (names []string) {
	for _, b := range branches {
		if len(words) > 0 && isPrefix(words[0], b.name, 1) {
			return b.next(words[1:])
		}
		names = append(names, b.name)
	}
	if len(words) > 0 {
		return nil
	}
	return names
}

func nothing([]string) []string { return nil }

// shown is the grammar of an object: show and list, and what follows these.
func (c *completer) shown(next func(words []string) []string) func(words []string) []string {
	return func(words []string) []string { return after(words, []branch{{"show", next}, {"list", next}}) }
}

// devices proposes devices as the last word.
func (c *completer) devices(words []string) (list []string) {
	if len(words) > 0 {
		return nil
	}
	names, _ := c.host.devices()
	for _, n := range names {
		list = append(list, printable.Text(n))
	}
	return list
}

// ports proposes ports as the last word.
func (c *completer) ports(words []string) (list []string) {
	if len(words) > 0 {
		return nil
	}
	names, _ := c.host.devices()
	for _, n := range names {
		ports, _ := c.host.ports(n)
		for i := range ports {
			list = append(list, fmt.Sprintf("%s/%d", printable.Text(n), i+1))
		}
	}
	return list
}

// resources proposes kinds of objects and devices, then filters.
func (c *completer) resources(words []string) []string {
	var kinds []branch
	for _, s := range showers {
		kinds = append(kinds, branch{s.name, func(w []string) []string { return c.filters(&s, w) }})
	}
	list := after(words, kinds)
	if len(words) == 0 {
		list = append(list, c.devices(nil)...)
	}
	return list
}

func (c *completer) statistics(words []string) []string {
	device := func(w []string) []string { return c.filters(&shower{where: "link"}, w) }
	qps := c.shown(func(w []string) []string { return c.filters(&qpCounters, w) })
	return after(words, []branch{{"show", device}, {"list", device}, {"qp", qps}})
}

// filters proposes the names of the filters that are not in words, or the values of the one whose value is missing.
func (c *completer) filters(s *shower, words []string) (list []string) {
	if len(words)%2 != 0 {
		return c.values(s, words[len(words)-1])
	}
	kinds := append(strs(s.where), s.kinds...)
	used := map[string]bool{}
	for i := 0; i < len(words); i += 2 {
		if k := findKind(words[i], kinds); k != nil {
			used[k.name] = true
		}
	}
	for _, k := range kinds {
		if !used[k.name] {
			list = append(list, k.name)
		}
	}
	return list
}

// values proposes the values that a filter has in the objects that exist.
func (c *completer) values(s *shower, filter string) []string {
	if isPrefix(filter, s.where, 1) {
		if s.where == "link" {
			return c.ports(nil)
		}
		return c.devices(nil)
	}
	k := findKind(filter, s.kinds)
	if k == nil {
		return nil
	}
	if err := c.showObjects(s, nil); err != nil {
		return nil
	}
	var list []string
	for i := range c.rows {
		list = append(list, c.rows[i].texts(k.name)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// texts returns the values of a field of the row, as a filter takes them.
func (r *row) texts(name string) (list []string) {
	for _, f := range slices.Concat(r.hidden, r.fields) {
		if f.name != name {
			continue
		}
		switch v := f.value.(type) {
		case counted:
			for _, n := range v {
				list = append(list, fmt.Sprint(n))
			}
		case hex:
			list = append(list, fmt.Sprintf("0x%x", uint64(v)))
		default:
			list = append(list, printable.Text(fmt.Sprint(v)))
		}
		return list
	}
	return nil
}

package rdmashow

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/printable"
)

// statistics is "rdma statistic": counters of devices and of QPs. Each QP has its own set of counters,
// numbered as the QP.
func (v *viewer) statistics(words []string) error {
	return pick("statistic command", words, []command{
		{"show", v.showStatistics}, {"list", v.showStatistics},
		{"qp", func(w []string) error {
			return pick("statistic command", w, []command{{"show", v.showQPStatistics}, {"list", v.showQPStatistics}})
		}},
	})
}

// showStatistics shows the counters of the devices that programs have open, summed over the programs.
func (v *viewer) showStatistics(words []string) error {
	if len(words) > 0 && !isPrefix(words[0], "link", 1) {
		return fmt.Errorf("unknown parameter %q; must be link DEV/PORT; for the counters of QPs use statistic qp show",
			words[0])
	}
	where, _, err := parseFilters(words, "link", nil)
	if err != nil {
		return err
	}
	list, err := v.gather(false, where)
	if err != nil {
		return err
	}
	for _, d := range list {
		if len(d.users) == 0 || !d.asked(1) {
			continue // no program has counters; those of all ports are port 1's
		}
		r := d.onLink(1)
		r.place = r.place[1:] // without the index, as in iproute2
		r.counters(d.sum())
		v.rows = append(v.rows, r)
	}
	return nil
}

// sum adds the counters of all programs, in the order of the first one.
func (d *device) sum() (all []control.Counter) {
	at := make(map[string]int)
	for _, u := range d.users {
		for _, c := range u.dev.Counters {
			i, ok := at[c.Name]
			if !ok {
				i = len(all)
				at[c.Name] = i
				all = append(all, control.Counter{Name: c.Name})
			}
			all[i].Value += c.Value
		}
	}
	return all
}

func (r *row) counters(list []control.Counter) {
	for _, c := range list {
		r.add(printable.Text(c.Name), counter(c.Value))
	}
}

var qpCounters = shower{"qp", false, "link", append(numbers("cntn", "lqpn", "pid"), strs("qp-type")...), qpStatistics}

func (v *viewer) showQPStatistics(words []string) error { return v.showObjects(&qpCounters, words) }

func qpStatistics(d *device, u *user) (rows []row) {
	for _, q := range u.dev.QPs {
		if !d.asked(q.Port) {
			continue
		}
		r := d.onLink(q.Port)
		r.add("cntn", q.Num)
		r.add("qp-type", qpType(q.Type))
		r.owner(u)
		r.counters(q.Counters)
		r.add("lqpn", counted{q.Num})
		rows = append(rows, r)
	}
	return rows
}

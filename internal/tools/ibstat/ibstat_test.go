package ibstat

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// States have the kernel's names, as in the output of the script of the same name.
func TestStatusHasTheKernelsStates(t *testing.T) {
	for s, want := range map[verbs.PortState]string{verbs.PortInit: "2: INIT", verbs.PortDown: "1: DOWN",
		verbs.PortArmed: "3: ARMED", verbs.PortActive: "4: ACTIVE"} {
		var b strings.Builder
		printStatus(&b, &device{name: "d", ports: []verbs.PortAttr{{State: s}}})
		if !strings.Contains(b.String(), "\tstate:\t\t "+want+"\n") {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// DEV:PORT selects ports.
func TestPortsAreChosen(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string // the ports shown, or the end of the error
	}{
		{nil, "12"}, {[]string{"2"}, "2"}, {[]string{"1"}, "1"}, {[]string{"2", "1"}, "12"}, {[]string{"", "2"}, "12"},
		{[]string{"3"}, `d: port "3": must be 1 to 2`}, {[]string{"0"}, `d: port "0": must be 1 to 2`},
		{[]string{"x"}, `d: port "x": must be 1 to 2`},
	} {
		d := &device{name: "d", ports: make([]verbs.PortAttr, 2)}
		got := ""
		if err := d.choose(c.words); err != nil {
			got = err.Error()
		} else {
			for _, n := range []int{1, 2} {
				if d.shows(n) {
					got += string(rune('0' + n))
				}
			}
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.words, got, c.want)
		}
	}
}

package soft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_PKEY_02_TablesOfTheEnvironment: VERBENA_PKEYS defines the tables of devices by name, and of the others.
func TestV_PKEY_02_TablesOfTheEnvironment(t *testing.T) {
	list := func(value string) (string, error) {
		t.Setenv(envPKeys, value)
		specs := []spec{{name: "a"}, {name: "b"}}
		err := setPKeyTables(specs)
		return fmt.Sprintf("%x %x", specs[0].pkeys, specs[1].pkeys), err
	}
	for value, want := range map[string]string{
		"":                                  "[] []",
		"0xffff+0x8001+0":                   "error must be 0x0000 to 0xffff",
		"0xffff+0X8001+0x0000":              "[[ffff 8001 0]] [[ffff 8001 0]]",
		"0x7fff, a=0x8002+0x2":              "[[8002 2]] [[7fff]]",
		"b/1=0x8003,b=0x8004,c=0x1":         "[[]] [[8003]]",
		"a=0x8000":                          "error low 15 bits",
		"a=0x8001,a=0x8002":                 "error second entry for a",
		"0x8001,0x8002":                     "error second entry for all devices",
		"a=0x10000":                         "error must be 0x0000 to 0xffff",
		"a=8001":                            "error must be 0x0000 to 0xffff",
		"a=":                                "error must be 0x0000 to 0xffff",
		"0x0":                               "error all entries are empty",
		"0x1" + strings.Repeat("+0x0", 128): "error must be 1 to 128",
	} {
		got, err := list(value)
		if text, bad := strings.CutPrefix(want, "error "); bad {
			if !errors.Is(err, verbs.EINVAL) || !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", value, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", value, got, err, want)
		}
	}
	d := newDevice(spec{name: "a", pkeys: [][]uint16{{0x8002, 2}}})
	if d.PKey(1, 1) != 2 || d.PKey(1, 2) != 0 || d.PKey(2, 0) != 0 || d.maxPKeys() != 2 {
		t.Errorf("the device has %x", d.pkeys[0].get())
	}
}

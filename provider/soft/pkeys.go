package soft

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// envPKeys is the environment variable that defines the P_Key tables.
const envPKeys = "VERBENA_PKEYS"

const (
	// maxPKeys is the maximum number of entries of a port's P_Key table.
	maxPKeys = 128
	// defaultPKey is the only entry of a table that is not defined: the default partition, full member.
	defaultPKey = 0xffff
)

// A pkeyTable is the P_Key table of a port. Its length never changes; an entry of 0 is empty.
type pkeyTable struct {
	keys atomic.Pointer[[]uint16]
}

// get returns the entries, which the caller must not change.
func (t *pkeyTable) get() []uint16 { return *t.keys.Load() }

// newPKeyTable returns a table with these entries; no entry means defaultPKey.
func newPKeyTable(keys []uint16) *pkeyTable {
	t := &pkeyTable{}
	if len(keys) == 0 {
		keys = []uint16{defaultPKey}
	}
	keys = slices.Clone(keys)
	t.keys.Store(&keys)
	return t
}

// checkPKeys checks the entries of a table of at most most entries.
func checkPKeys(keys []uint16, most int) error {
	if len(keys) < 1 || len(keys) > most {
		return fmt.Errorf("%d P_Keys: must be 1 to %d", len(keys), most)
	}
	for i, k := range keys {
		switch {
		case k == 0x8000:
			return fmt.Errorf("P_Key 0x%04x: the low 15 bits must not be 0 (0x0000 is an empty entry)", k)
		case k != 0 && slices.Contains(keys[:i], k):
			return fmt.Errorf("P_Key 0x%04x: must be given once", k)
		}
	}
	if !slices.ContainsFunc(keys, func(k uint16) bool { return k != 0 }) {
		return fmt.Errorf("all entries are empty: a port must have a P_Key")
	}
	return nil
}

// SetPKeys replaces the P_Key table of a port of a software device, for all its contexts in this process. The keys are
// in host byte order, with bit 15 set for a full member; 0 is an empty entry. The table keeps its length, so that
// entries that are not given become empty. QPs keep their index: from now on they send and check the key that the entry
// has, and one whose entry is empty communicates with no other. Each context gets the event verbs.EventPKeyChange
// unless nothing has changed. It has no C twin: on InfiniBand the subnet manager does it.
//
// Errors: EOPNOTSUPP for a device of another provider, EINVAL for another port, more keys than entries, no key, a key
// that is given twice, and 0x8000.
func SetPKeys(dev *verbs.Device, port uint8, keys ...uint16) error {
	const op = "set_pkeys"
	d, ok := driver.Of[verbs.DriverDevice](dev).(*device)
	if !ok {
		return &verbs.Error{Op: op, Obj: dev.Name(), Errno: verbs.EOPNOTSUPP, Detail: "not a device of the software provider"}
	}
	var err error
	if port < 1 || int(port) > len(d.pkeys) {
		err = fmt.Errorf("port %d: must be 1 to %d", port, len(d.pkeys))
	} else {
		err = d.setPKeys(port, keys)
	}
	if err != nil {
		return &verbs.Error{Op: op, Obj: dev.Name(), Errno: verbs.EINVAL, Detail: err.Error()}
	}
	return nil
}

// setPKeys replaces the table of a port, and tells the QPs and the contexts.
func (d *device) setPKeys(port uint8, keys []uint16) error {
	t := d.pkeys[port-1]
	d.mu.Lock()
	defer d.mu.Unlock()
	old := t.get()
	if err := checkPKeys(keys, len(old)); err != nil {
		return err
	}
	next := make([]uint16, len(old))
	copy(next, keys)
	if slices.Equal(old, next) {
		return nil
	}
	t.keys.Store(&next)
	if d.eng != nil {
		d.eng.PKeysChanged()
		d.raise(verbs.EventPKeyChange, port)
	}
	return nil
}

// PKey returns an entry of a port's table; see transport.Ports.
func (d *device) PKey(port uint8, index uint16) uint16 {
	if port < 1 || int(port) > len(d.pkeys) {
		return 0
	}
	if keys := d.pkeys[port-1].get(); int(index) < len(keys) {
		return keys[index]
	}
	return 0
}

// FindPKey returns the entry that permits communication with key; see transport.Ports.
func (d *device) FindPKey(local netip.Addr, key uint16) (index uint16, ok bool) {
	keys := d.pkeys[d.PortOf(local)-1].get()
	i := slices.IndexFunc(keys, func(k uint16) bool { return transport.PKeyMatch(k, key) })
	return uint16(max(0, i)), i >= 0
}

// PKeyTable returns the P_Key table.
func (c *deviceContext) PKeyTable(port uint8) ([]uint16, error) {
	return c.dev.pkeys[port-1].get(), nil
}

// setPKeyTables sets the tables that the environment defines in the specs of the devices. The value is a
// comma-separated list of [DEVICE[/PORT]=]KEY[+KEY...]. The entry that names a port precedes the one that names its
// device, which precedes the one without a name.
func setPKeyTables(specs []spec) error {
	value := os.Getenv(envPKeys)
	if strings.TrimSpace(value) == "" {
		return nil
	}
	tables := map[string][]uint16{}
	for entry := range strings.SplitSeq(value, ",") {
		name, list, named := strings.Cut(strings.TrimSpace(entry), "=")
		if !named {
			name, list = "", name
		}
		keys, err := parsePKeys(list)
		if err == nil && tables[name] != nil {
			of := "all devices"
			if name != "" {
				of = name
			}
			err = fmt.Errorf("it is the second entry for %s: join the P_Keys of one table with '+'", of)
		}
		if err != nil {
			return fail(verbs.EINVAL, "%s: entry %q: %v", envPKeys, entry, err)
		}
		tables[name] = keys
	}
	for i := range specs {
		s := &specs[i]
		for port := range s.ports() {
			for _, name := range []string{fmt.Sprintf("%s/%d", s.name, port+1), s.name, ""} {
				if t := tables[name]; t != nil {
					s.pkeys = append(s.pkeys, t)
					break
				}
			}
			if len(s.pkeys) == port {
				s.pkeys = append(s.pkeys, nil)
			}
		}
	}
	return nil
}

// parsePKeys parses KEY[+KEY...].
func parsePKeys(list string) (keys []uint16, err error) {
	for text := range strings.SplitSeq(list, "+") {
		digits, hex := strings.CutPrefix(strings.ToLower(strings.TrimSpace(text)), "0x")
		k, err := strconv.ParseUint(digits, 16, 16)
		if err != nil || !hex {
			return nil, fmt.Errorf("P_Key %q: must be 0x0000 to 0xffff", text)
		}
		keys = append(keys, uint16(k))
	}
	return keys, checkPKeys(keys, maxPKeys)
}

// maxPKeys returns the length of the longest table.
func (d *device) maxPKeys() (n uint16) {
	for _, t := range d.pkeys {
		n = max(n, uint16(len(t.get())))
	}
	return n
}

package rdmacm

import (
	"net/netip"
	"syscall"
)

// defaultPKey is the key of the default partition, full member.
const defaultPKey = 0xFFFF

// partition finds the entry of the port's P_Key table for a partition: the key itself, else the same one with the other
// membership. The key 0 means the default partition, or the first of the table if the port is not in that. An iWARP
// adapter has no table; it accepts the default partition only.
func (d *device) partition(port uint8, key uint16) (index, found uint16, ok bool) {
	attr, err := d.ctx.QueryPort(port)
	if err != nil || attr.PKeyTblLen == 0 {
		return 0, defaultPKey, key == 0 || key == defaultPKey
	}
	want, first, other := key, -1, -1
	if key == 0 {
		want = defaultPKey
	}
	for i := range int(attr.PKeyTblLen) {
		k, err := d.ctx.QueryPKey(port, i)
		switch {
		case err != nil || k == 0:
			continue
		case k == want:
			return uint16(i), k, true
		case k<<1 == want<<1 && other < 0:
			other = i
		case first < 0:
			first = i
		}
	}
	if other < 0 && key == 0 {
		other = first
	}
	if other < 0 {
		return 0, 0, false
	}
	k, err := d.ctx.QueryPKey(port, other)
	return uint16(other), k, err == nil
}

// hasPKey reports whether a port is in a partition.
func (d *device) hasPKey(port uint8, key uint16) bool {
	_, _, ok := d.partition(port, key)
	return ok
}

// hasPKeyAt reports whether a peer's request to a local address may name a P_Key.
func (d *device) hasPKeyAt(local netip.Addr, key uint16) bool { return d.hasPKey(d.portOf(local), key) }

// pathPKey is the P_Key that a path of the ID has: a limited member's key in a path record has the full member's form
// only if the port has that.
//
// +checklocks:id.mu
func (id *ID) pathPKey(op string) (uint16, error) {
	_, key, err := id.findPKey(op, id.pkey)
	return key, err
}

// qpPKeyIndex is the index of the P_Key of the ID's QP. EINVAL if the port has left the partition of the route.
//
// +checklocks:id.mu
func (id *ID) qpPKeyIndex(op string) (uint16, error) {
	key := id.pkey
	if id.haveRoute {
		key = id.path.PKey
	}
	index, _, err := id.findPKey(op, key)
	return index, err
}

// findPKey finds the entry of the port's table for a partition; see device.partition.
//
// +checklocks:id.mu
func (id *ID) findPKey(op string, key uint16) (index, found uint16, err error) {
	index, found, ok := id.dev.partition(id.sgid.port, key)
	if !ok {
		return 0, 0, id.fail(op, syscall.EINVAL, "P_Key %#x: must be in the table of %v", key, id.dev.vdev)
	}
	return index, found, nil
}

// hasPKey reports whether a device of the host has a P_Key.
func (h *Host) hasPKey(key uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	devices, _ := h.scan()
	for _, d := range devices {
		for port := uint8(firstPort); port <= d.attr.PhysPortCnt; port++ {
			if d.hasPKey(port, key) {
				return true
			}
		}
	}
	return false
}

// pkeyOf returns the entry of a port's table that a datagram came with.
func (d *device) pkeyOf(port uint8, index uint16) uint16 {
	key, err := d.ctx.QueryPKey(port, int(index))
	if err != nil {
		return 0
	}
	return key
}

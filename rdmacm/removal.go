package rdmacm

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// watch starts the goroutine of the device's events. If a second context cannot be opened there are no events.
// Host.mu is held.
func (d *device) watch() {
	async, err := d.vdev.Open()
	if err != nil {
		return
	}
	d.async = async
	first := d.hardware()
	d.watcher.Go(func() {
		for {
			ev, err := async.GetAsyncEvent(context.Background())
			if err != nil {
				return
			}
			ev.Ack()
			switch ev.Type {
			case verbs.EventDeviceFatal:
				d.remove()
			case verbs.EventGIDChange:
				now := d.hardware()
				d.moved(now != first)
				first = now
			}
		}
	})
}

func (d *device) unwatch() {
	if d.async != nil {
		_ = d.async.Close()
	}
	d.watcher.Wait()
}

// hardware is the entry of the GID table that is derived from the hardware's address.
func (d *device) hardware() (gid verbs.GID) {
	if table, err := d.ctx.QueryGIDTable(); err == nil && len(table) > 0 {
		gid = table[0].GID
	}
	return gid
}

// bound lists the IDs that are bound to the device, and the listeners on all devices.
func (d *device) bound() (bound, wild []*ID) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	for id := range d.users {
		bound = append(bound, id)
	}
	for id := range d.host.wild {
		wild = append(wild, id)
	}
	return bound, wild
}

// remove handles the removal of the device: it reports EventDeviceRemoval to the IDs and forgets the device. A new
// device of the same name is another device.
func (d *device) remove() {
	d.host.mu.Lock()
	was := d.gone
	if !was && d.cm != nil {
		d.cm.unscreen() // before another manager is made for the device
	}
	d.gone = true
	d.host.mu.Unlock()
	if was {
		return
	}
	if d.cm != nil {
		_ = d.cm.agent.Close()
	}
	bound, wild := d.bound()
	for _, id := range bound {
		id.mu.Lock()
		if id.state != stDestroying && id.dev == d { // else it has left the device meanwhile
			id.state = stRemoved
			id.endWaits()
			id.endReach()
			id.push(&Event{Type: EventDeviceRemoval})
		}
		id.mu.Unlock()
	}
	for _, id := range wild {
		id.mu.Lock()
		ended := id.unlistenOn(d)
		id.mu.Unlock()
		giveBack(ended)
	}
	d.host.mu.Lock()
	d.retire()
	d.host.mu.Unlock()
}

// retire closes a device that is gone when no ID is bound to it any more. Host.mu is held, which the analyzer
// cannot see: callers know the host by another name.
//
// +checklocksignore
func (d *device) retire() {
	h := d.host
	if i := slices.Index(h.devices, d); d.gone && len(d.users) == 0 && d.busy == 0 && i >= 0 {
		h.devices = slices.Delete(h.devices, i, i+1)
		go d.close() // waits for goroutines that may wait for Host.mu
	}
}

// moved reports EventAddrChange to the IDs whose address the device does not have any more; to all IDs if all is set:
// the hardware's address has changed. An address that has come back may be at another place of the table.
func (d *device) moved(all bool) {
	bound, _ := d.bound()
	for _, id := range bound {
		id.mu.Lock()
		at := d.findOn(id.sgid.port, id.zoned(id.local).Addr())
		stray := at == noPlace
		if !stray && id.dev == d && !id.passive { // a request has the place of the address that it came to
			id.sgid = at
		}
		if id.state != stDestroying && id.state != stRemoved && id.dev == d && (all || stray && !id.addrLost) {
			id.push(&Event{Type: EventAddrChange})
		}
		id.addrLost = stray
		id.mu.Unlock()
	}
}

// lookEvery is the interval at which a host looks for new devices, if listeners wait for them.
const lookEvery = time.Second

// look starts the search for new devices, which ends at once if there are no listeners on all devices.
//
// +checklocks:h.mu
func (h *Host) look() {
	if !h.grow || h.looking {
		return
	}
	h.looking = true
	go func() {
		for h.extend() {
			time.Sleep(lookEvery)
		}
	}()
}

// extend begins to listen on new devices, for the listeners on all devices. It reports whether there are such
// listeners.
func (h *Host) extend() bool {
	h.mu.Lock()
	if len(h.wild) == 0 || h.closed {
		h.looking = false
		h.mu.Unlock()
		return false
	}
	wild := slices.Collect(maps.Keys(h.wild))
	of := map[PortSpace][]*device{}
	for _, id := range wild {
		if _, ok := of[id.ps]; !ok { // to list the devices takes many system calls
			devices, _ := h.choices(id.ps) // a device that cannot be opened now is tried again
			of[id.ps] = slices.Clone(devices)
		}
	}
	h.mu.Unlock()
	for _, id := range wild {
		for _, d := range of[id.ps] {
			id.extendTo(d)
		}
	}
	return true
}

// extendTo begins to listen on a new device.
func (id *ID) extendTo(d *device) {
	id.mu.Lock()
	lacks, claim := id.lacks(d), id.claim()
	id.mu.Unlock()
	if !lacks {
		return
	}
	h := id.host
	h.mu.Lock()
	unclaim, err := claim.on(d) // without the lock of the ID, which listens on other devices
	h.mu.Unlock()
	if err != nil {
		return
	}
	id.mu.Lock()
	if id.lacks(d) {
		h.mu.Lock()
		err = id.listenOn(d, unclaim)
		h.mu.Unlock()
	} else {
		err = errTaken
	}
	id.mu.Unlock()
	if err != nil {
		giveBack([]deviceListener{{unclaim: unclaim}})
	}
}

// lacks reports whether the ID is to listen on a device and does not yet.
//
// +checklocks:id.mu
func (id *ID) lacks(d *device) bool {
	return id.state == stListen && !id.listensOn(d) && (!d.streams || id.ps == PSTCP)
}

// listensOn reports whether the ID listens on the device.
//
// +checklocks:id.mu
func (id *ID) listensOn(d *device) bool {
	return slices.ContainsFunc(id.listeners, func(l deviceListener) bool { return l.dev == d })
}

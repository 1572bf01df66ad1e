package rdmacm

import (
	"context"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// watch begins to follow the device's events. Without a second context there are none. Host.mu is held.
func (d *device) watch() {
	eyes, err := d.vdev.Open()
	if err != nil {
		return
	}
	d.eyes = eyes
	first := d.hardware()
	d.ended.Go(func() {
		for {
			ev, err := eyes.GetAsyncEvent(context.Background())
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
	if d.eyes != nil {
		_ = d.eyes.Close()
	}
}

// hardware is the entry of the GID table that follows the hardware's address.
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

// remove is the end of the device: its IDs are told, and it is forgotten. One of its name that comes is another one.
func (d *device) remove() {
	d.host.mu.Lock()
	was := d.gone
	d.gone = true
	d.host.mu.Unlock()
	if was {
		return
	}
	_ = d.agent.Close()
	bound, wild := d.bound()
	for _, id := range bound {
		id.mu.Lock()
		if id.state != stDestroying {
			id.state = stRemoved
			id.push(&Event{Type: EventDeviceRemoval})
		}
		id.mu.Unlock()
	}
	for _, id := range wild {
		id.mu.Lock()
		id.listeners = slices.DeleteFunc(id.listeners, func(l deviceListener) bool {
			if l.dev == d {
				l.release()
			}
			return l.dev == d
		})
		id.mu.Unlock()
	}
	d.host.mu.Lock()
	d.retire()
	d.host.mu.Unlock()
}

// retire closes a device that has gone once nobody is bound to it. Host.mu is held.
func (d *device) retire() {
	h := d.host
	if i := slices.Index(h.devices, d); d.gone && len(d.users) == 0 && i >= 0 {
		h.devices = slices.Delete(h.devices, i, i+1)
		go d.close() // it waits for goroutines that may wait for Host.mu
	}
}

// moved tells the IDs whose address is not the device's any more; all of them if the hardware has another address.
func (d *device) moved(all bool) {
	bound, _ := d.bound()
	for _, id := range bound {
		id.mu.Lock()
		stray := d.gidIndex(id.local.Addr()) < 0
		if id.state != stDestroying && id.state != stRemoved && (all || stray && !id.strayed) {
			id.push(&Event{Type: EventAddrChange})
		}
		id.strayed = stray
		id.mu.Unlock()
	}
}

// lookEvery is how often a host looks for devices that have come, if listeners wait for them.
const lookEvery = time.Second

// look begins to look for new devices, for the listeners on all of them. Host.mu is held.
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

// extend puts the listeners on all devices on those that have come. It is false when there are no such listeners.
func (h *Host) extend() bool {
	h.mu.Lock()
	if len(h.wild) == 0 || h.closed {
		h.looking = false
		h.mu.Unlock()
		return false
	}
	devices, _ := h.scan() // what cannot be opened now is tried again
	devices = slices.Clone(devices)
	var wild []*ID
	for id := range h.wild {
		wild = append(wild, id)
	}
	h.mu.Unlock()
	for _, id := range wild {
		id.mu.Lock()
		h.mu.Lock()
		for _, d := range devices {
			if id.state == stListen && !d.gone && !id.listensOn(d) {
				_ = id.listenOn(d)
			}
		}
		h.mu.Unlock()
		id.mu.Unlock()
	}
	return true
}

func (id *ID) listensOn(d *device) bool {
	return slices.ContainsFunc(id.listeners, func(l deviceListener) bool { return l.dev == d })
}

// answerLAP tells a peer that wants an alternate path that there is none: a RoCE connection has the ways that IP finds.
func (d *device) answerLAP(id *cm.ID) {
	_ = d.do(func(m *cm.Machine, _ int64, out *cm.Batch) error {
		return m.AnswerPath(id, cmmsg.APRUnsupported, nil, nil, out)
	})
}

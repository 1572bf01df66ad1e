package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// What the removal of a device changes, and what it leaves alone.

// An ID that has left the device, or is closed, while the device is removed, is left alone.
func TestRemovalLeavesOtherIDsAlone(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	d := id.dev
	ch := newChannel(h)
	away, closed := &ID{host: h, state: stAddrBound}, &ID{host: h, state: stDestroying}
	h.mu.Lock()
	for _, other := range []*ID{away, closed} {
		other.ch = ch
		d.users[other] = struct{}{}
	}
	h.mu.Unlock()
	away.dev, closed.dev = &device{host: h}, d
	screens := 0
	was := d.cm.unscreen
	d.cm.unscreen = func() { screens++; was() }
	if d.remove(); screens != 1 {
		t.Errorf("the screen was taken away %d times", screens)
	}
	d.remove() // once more has no effect
	if id.state != stRemoved || away.state != stAddrBound || closed.state != stDestroying || len(ch.queue) != 0 {
		t.Errorf("the ID is %v, the one that has left %v, the closed one %v; %d events of those", id.state, away.state,
			closed.state, len(ch.queue))
	}
	if screens != 1 {
		t.Errorf("the screen was taken away %d times", screens)
	}
	h.mu.Lock()
	delete(d.users, away)
	delete(d.users, closed)
	h.mu.Unlock()
	if err := id.Close(); err != nil {
		t.Error(err)
	}
	h.mu.Lock()
	if len(h.devices) != 0 {
		t.Error("the device is kept after the last ID")
	}
	h.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A host with IDs cannot be closed: the IDs go on.
func TestCloseOfAHostWithOneID(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	if err := h.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("with an ID: %v", err)
	}
	if err := id.Listen(1); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// One goroutine at a time looks for new devices, and the next one when listeners come again.
func TestSearchForNewDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		h := NewGrowingHost(func() ([]*verbs.Device, error) { lists++; return nil, nil })
		l := &ID{host: h, ps: PSTCP}
		for range 2 {
			h.mu.Lock()
			h.wild[l] = struct{}{}
			h.look()
			h.look()
			if !h.looking {
				t.Error("nothing looks for devices")
			}
			lists = 0
			h.mu.Unlock()
			synctest.Wait()
			time.Sleep(3*lookEvery - 1)
			h.mu.Lock()
			if lists != 3 {
				t.Errorf("%d times in just less than three intervals, want 3", lists)
			}
			delete(h.wild, l)
			h.mu.Unlock()
			time.Sleep(2 * lookEvery)
			h.mu.Lock()
			if h.looking || lists != 3 {
				t.Errorf("without listeners: looking %v, %d times", h.looking, lists)
			}
			h.mu.Unlock()
		}
	})
}

// ADDR_CHANGE is reported once for an address that has gone, and again when it has come back and gone again.
func TestAddressThatGoesTwice(t *testing.T) {
	h := memoryHost(t)
	ch := newChannel(h)
	id, err := h.CreateID(ch, PSTCP, nil)
	if err == nil {
		err = id.BindAddr(netip.AddrPortFrom(fuzzHere, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	d, here := id.dev, id.local
	for i, c := range []struct {
		local  netip.AddrPort
		events int
	}{{netip.AddrPortFrom(fuzzThere, 7), 1}, {netip.AddrPortFrom(fuzzThere, 7), 1}, {here, 1},
		{netip.AddrPortFrom(fuzzThere, 7), 2}} {
		id.local = c.local
		d.moved(false)
		if n := len(ch.queue); n != c.events {
			t.Errorf("change %d: %d events, want %d", i, n, c.events)
		}
	}
	id.local = here
	if err := errors.Join(ch.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

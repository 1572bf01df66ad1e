package rdmacm

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A channel that is closed closes its IDs, but not one that moves to another channel at the same time.
func TestC_CHAN_08_ClosedWhileAnIDMoves(t *testing.T) {
	h := memoryHost(t)
	old, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	to, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.CreateID(old, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Migrate(to); err != nil {
		t.Fatal(err)
	}
	id.destroyOn(old) // Close had it on its list
	if err := id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)); err != nil {
		t.Errorf("the ID was destroyed: %v", err)
	}
	id.destroyOn(to)
	if err := h.Close(); err != nil {
		t.Errorf("the ID was not destroyed: %v", err)
	}
}

// migrating is an ID with an event that is retrieved and not acknowledged, and with more in its channel.
func migrating(t *testing.T, more int) (id *ID, ch *EventChannel, open *Event) {
	t.Helper()
	h := memoryHost(t)
	ch, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	id, err = h.CreateID(ch, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	id.mu.Lock()
	for range 1 + more {
		id.push(&Event{Type: EventAddrChange})
	}
	id.mu.Unlock()
	if open, err = ch.TryGetEvent(); err != nil {
		t.Fatal(err)
	}
	return id, ch, open
}

// begin calls f, and returns when it is likely to wait.
func begin(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	time.Sleep(20 * time.Millisecond)
	return done
}

// Of two Migrates that make an ID synchronous at the same time one succeeds. The other must not replace the channel,
// on which calls wait by then.
func TestC_ID_15_TwoMigrates(t *testing.T) {
	id, ch, open := migrating(t, 0)
	a := begin(func() error { return id.Migrate(nil) })
	b := begin(func() error { return id.Migrate(nil) })
	if err := open.Ack(); err != nil {
		t.Fatal(err)
	}
	errs := []error{<-a, <-b}
	if errs[0] != nil {
		slices.Reverse(errs)
	}
	if errs[0] != nil || !errors.Is(errs[1], syscall.EINVAL) {
		t.Errorf("%v, %v; want success and EINVAL", errs[0], errs[1])
	}
	if err := errors.Join(id.Close(), ch.Close()); err != nil {
		t.Error(err)
	}
}

// Migrate also waits for an event that is retrieved while it waits for another.
func TestC_ID_15_MigrateWaitsForLaterEvents(t *testing.T) {
	id, ch, open := migrating(t, 1)
	done := begin(func() error { return id.Migrate(nil) })
	id.mu.Lock()
	_ = open.Ack()
	time.Sleep(20 * time.Millisecond) // Migrate goes on to lock the ID
	later, err := ch.TryGetEvent()
	id.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Errorf("Migrate returned %v before the event was acknowledged", err)
		_ = later.Ack()
	case <-time.After(50 * time.Millisecond):
		_ = later.Ack()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(id.Close(), ch.Close()); err != nil {
		t.Error(err)
	}
}

// A synchronous call that ends while Migrate waits leaves its event with the ID. Migrate acknowledges it too, or else
// Close would wait for that for ever.
func TestC_ID_15_MigrateDuringACall(t *testing.T) {
	id, ch, open := migrating(t, 0)
	if id.mu.Lock(); true {
		id.sync, id.event = true, nil // as if ch were the ID's own
	}
	id.mu.Unlock()
	to, err := id.host.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	done := begin(func() error { return id.Migrate(to) })
	id.mu.Lock()
	_ = open.Ack()
	time.Sleep(20 * time.Millisecond)
	id.push(&Event{Type: EventAddrChange})
	id.event, err = ch.TryGetEvent() // what complete does
	id.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	closed := begin(id.Close)
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Close waits for an event that nobody can acknowledge")
	}
	_ = to.Close()
}

// Migrate of an ID that is closed meanwhile fails.
func TestC_ID_15_ClosedWhileItMigrates(t *testing.T) {
	id, ch, open := migrating(t, 0)
	done := begin(func() error { return id.Migrate(nil) })
	closed := begin(id.Close)
	for closing := false; !closing; time.Sleep(time.Millisecond) { // else the event's end lets Migrate succeed
		id.mu.Lock()
		closing = id.state == stDestroying
		id.mu.Unlock()
	}
	_ = open.Ack()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("Migrate: %v, want ErrClosed", err)
	}
	if err := errors.Join(<-closed, ch.Close()); err != nil {
		t.Error(err)
	}
}

// A channel closes its IDs, also one that has moved from it to the same channel; and the own channel of a synchronous
// ID can become an ordinary one.
func TestC_ID_15_MigrateToTheSameChannel(t *testing.T) {
	id, ch, open := migrating(t, 1)
	_ = open.Ack()
	if err := id.Migrate(ch); err != nil {
		t.Fatal(err)
	}
	if ev, err := ch.TryGetEvent(); err != nil {
		t.Error(err)
	} else {
		_ = ev.Ack()
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if err := id.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("the channel's Close has left the ID open: %v", err)
	}

	id, err := id.host.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Migrate(id.Channel()); err != nil {
		t.Fatal(err)
	}
	if _, err := id.Channel().TryGetEvent(); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("the channel is %v", err)
	}
	if err := id.Close(); err != nil {
		t.Error(err)
	}
}

// While Migrate waits the ID is on its old channel alone: the new one keeps nothing of an ID that is closed meanwhile,
// and the old one closes its ID.
func TestC_ID_15_OneChannelWhileMigrateWaits(t *testing.T) {
	id, ch, open := migrating(t, 0)
	to := newChannel(id.host)
	done := begin(func() error { return id.Migrate(to) })
	id.destroyAll()
	_ = open.Ack()
	if err := <-done; !errors.Is(err, ErrClosed) || len(to.ids.all()) != 0 {
		t.Errorf("Migrate to another channel: %v, want ErrClosed; %d IDs are on that channel", err, len(to.ids.all()))
	}
	if err := errors.Join(ch.Close(), to.Close()); err != nil {
		t.Error(err)
	}

	id, ch, open = migrating(t, 0)
	done = begin(func() error { return id.Migrate(ch) })
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	_ = open.Ack()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("Migrate to the same channel, which is closed: %v, want ErrClosed", err)
	}
	if err := id.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("the channel's Close has left the ID open: %v", err)
	}
}

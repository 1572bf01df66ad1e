package soft

import (
	"slices"
	"sync"
	"time"
)

// monitored is the set of devices that follow their network interfaces.
var monitored monitor

// monitor watches the network interfaces while it has devices.
type monitor struct {
	mu sync.Mutex // guards devices and stop
	// +checklocks:mu
	devices []*device
	// +checklocks:mu
	stop func() // nil while it has no devices
}

func (m *monitor) add(d *device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices = append(m.devices, d)
	if m.stop == nil {
		m.stop = watchInterfaces(m.changed)
	}
}

func (m *monitor) remove(d *device) {
	m.mu.Lock()
	m.devices = slices.DeleteFunc(m.devices, func(o *device) bool { return o == d })
	var stop func()
	if len(m.devices) == 0 {
		stop, m.stop = m.stop, nil
	}
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// changed refreshes all devices after a change of some address or interface.
func (m *monitor) changed() {
	m.mu.Lock()
	devices := slices.Clone(m.devices)
	m.mu.Unlock()
	for _, d := range devices {
		d.refresh()
	}
}

// pollInterval is the time between two looks at the interfaces where the system does not report changes.
const pollInterval = time.Second

// pollInterfaces calls changed once each pollInterval until stop returns.
func pollInterfaces(changed func()) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				changed()
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
	}
}

package soft

import (
	"slices"
	"sync"
)

// monitored is the set of devices that follow their network interfaces. While it is not empty a goroutine
// listens to the system's notices of changes.
var monitored monitor

type monitor struct {
	mu      sync.Mutex
	devices []*device
	stop    func()
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

// changed says that addresses or interfaces changed, nobody knows which.
func (m *monitor) changed() {
	m.mu.Lock()
	devices := slices.Clone(m.devices)
	m.mu.Unlock()
	for _, d := range devices {
		d.refresh()
	}
}

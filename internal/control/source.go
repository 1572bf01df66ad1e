package control

import "sync"

// sources add what the provider does not know to its reports.
var sources struct {
	sync.Mutex
	// +checklocks:Mutex
	list map[*func(*Report)]struct{}
}

// AddSource registers f to be called for each report of this process, after the devices are in it, until remove is
// called.
func AddSource(f func(*Report)) (remove func()) {
	sources.Lock()
	defer sources.Unlock()
	if sources.list == nil {
		sources.list = map[*func(*Report)]struct{}{}
	}
	sources.list[&f] = struct{}{}
	return func() {
		sources.Lock()
		defer sources.Unlock()
		delete(sources.list, &f)
	}
}

// Complete calls all sources for a report.
func Complete(r *Report) {
	sources.Lock()
	var list []func(*Report)
	for f := range sources.list {
		list = append(list, *f)
	}
	sources.Unlock()
	for _, f := range list {
		f(r)
	}
}

package soft

import (
	"sync"
	"time"
)

// pollInterval is how often interfaces are looked at where the system does not tell of changes.
const pollInterval = time.Second

// pollInterfaces calls changed now and then, until stop has returned.
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

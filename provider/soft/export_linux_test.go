package soft

import "time"

import "testing"

// WaitUp is waitUp for package soft_test.
func WaitUp(t *testing.T, name string) { waitUp(t, name) }

// SetHandleTimeout sets the time that the process of a QP has to answer, until restore is called.
func SetHandleTimeout(d time.Duration) (restore func()) {
	was := handleTimeout
	handleTimeout = d
	return func() { handleTimeout = was }
}

package soft

import "testing"

// WaitUp is waitUp for package soft_test.
func WaitUp(t *testing.T, name string) { waitUp(t, name) }

package soft

import (
	"os"
	"testing"
)

// RunInNamespace is runInNamespace for package soft_test. It reports whether the process is the one in the namespace.
func RunInNamespace(t *testing.T) bool {
	if os.Getenv(inNamespace) != "" {
		return true
	}
	runInNamespace(t)
	return false
}

// WaitUp is waitUp for package soft_test.
func WaitUp(t *testing.T, name string) { waitUp(t, name) }

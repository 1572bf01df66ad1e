//go:build !unix && !windows

package soft

import "os"

// lockFile does nothing: this system has no locks of files.
func lockFile(*os.File) error { return nil }

package soft

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks the file until it is closed; errLocked if another process has locked it. Locked bytes cannot be read
// or written by others, so the locked one is far behind the end of the file.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return nil // some file systems have no locks
}

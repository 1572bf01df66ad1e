//go:build !linux && !darwin

package endpoint

import (
	"errors"
	"time"
)

// CPU returns errors.ErrUnsupported: the processor time is not known on this system.
func CPU() (time.Duration, error) { return 0, errors.ErrUnsupported }

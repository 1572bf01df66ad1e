//go:build !linux && !darwin

package endpoint

import (
	"errors"
	"time"
)

// CPU is the processor time that this process has had, which is not known here.
func CPU() (time.Duration, error) { return 0, errors.ErrUnsupported }

package driver

import (
	"fmt"
	"os"
	"syscall"
)

// The names of the providers.
const (
	HW    = "hw"
	IWARP = "iwarp"
	Soft  = "soft"
)

// EnvProvider is the environment variable that selects a provider, and EnvTransport the one that selects the kind of
// device of connections.
const (
	EnvProvider  = "VERBENA_PROVIDER"
	EnvTransport = "VERBENA_TRANSPORT"
)

// Selected reports whether the environment permits the provider of this name: VERBENA_PROVIDER is its name, or empty.
// EINVAL for another value than the names of providers.
func Selected(name string) (bool, error) {
	switch v := os.Getenv(EnvProvider); v {
	case "", name:
		return true, nil
	case HW, IWARP, Soft:
		return false, nil
	default:
		return false, fmt.Errorf("%s=%q: must be %s, %s or %s: %w", EnvProvider, v, HW, Soft, IWARP,
			syscall.EINVAL)
	}
}

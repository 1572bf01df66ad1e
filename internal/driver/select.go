package driver

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
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

// Why returns why a device was chosen and not one of another provider, for people.
func Why(dev *verbs.Device) string {
	switch {
	case dev.Provider() == HW:
		return "it is an adapter"
	case os.Getenv(EnvProvider) != "":
		return EnvProvider + " is " + os.Getenv(EnvProvider)
	}
	devices, _ := verbs.Devices()
	if slices.ContainsFunc(devices, func(d *verbs.Device) bool { return d.Provider() == HW }) {
		return "no adapter has this address, or it cannot be opened"
	}
	if err := Absent(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return "the program does not import provider/hw"
}

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

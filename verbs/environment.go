package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// kernelDevices is the Linux directory of devices that programs may drive, each with its name in the file ibdev.
var kernelDevices = "/sys/class/infiniband_verbs"

// warnUndriven writes a line for each device of the kernel without a provider, if the environment variable
// IBV_SHOW_WARNINGS is set, even to the empty string.
func warnUndriven(w io.Writer, devices []*Device) {
	if !isSet("IBV_SHOW_WARNINGS") {
		return
	}
	files, _ := filepath.Glob(filepath.Join(kernelDevices, "*", "ibdev"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		name := strings.TrimSpace(string(text))
		if err != nil || name == "" {
			continue
		}
		if !slices.ContainsFunc(devices, func(d *Device) bool { return d.Name() == name }) {
			fmt.Fprintf(w, "libibverbs: Warning: no userspace device-specific driver found for %s\n", name)
		}
	}
}

// destroyed filters the error of a driver's Destroy. If the environment variable RDMAV_ALLOW_DISASSOC_DESTROY is set,
// even to the empty string, EIO counts as success: the device is gone, and the object with it. rdma-core treats the
// value 0 as not set.
func destroyed(err error) error {
	if errors.Is(err, syscall.EIO) && isSet(allowDisassocDestroy) {
		return nil
	}
	return err
}

// ForkStatus describes the protection against fork (enum ibv_fork_status).
type ForkStatus uint32

// The fork statuses (IBV_FORK_*).
const (
	ForkDisabled ForkStatus = 0
	ForkEnabled  ForkStatus = 1
	ForkUnneeded ForkStatus = 2 // no memory needs protection
)

var forkStatusNames = []string{"DISABLED", "ENABLED", "UNNEEDED"}

// String returns the name without IBV_FORK_.
func (s ForkStatus) String() string { return nameOf("ForkStatus", forkStatusNames, int64(s)) }

var fork struct {
	mu sync.Mutex // so that ForkInit does not pass a registration
	// +checklocks:mu
	enabled    bool
	registered atomic.Bool // memory was registered
	asked      sync.Once   // guards reading the environment
}

// ForkInit requests protection of registered memory when the process forks (ibv_fork_init). It must be called before
// any memory is registered, else EINVAL. A second call has no effect. If RDMAV_FORK_SAFE or IBV_FORK_SAFE is set in
// the environment, even to the empty string, listing or opening devices calls ForkInit first; rdma-core treats the
// value 0 as not set.
//
// A Go program cannot fork without exec, and the programs that os/exec starts never write to the parent's pages.
// ForkInit therefore only checks the order of calls; memory is equally safe without it. C code of the program that
// forks must protect its memory itself (madvise with MADV_DONTFORK). RDMAV_HUGEPAGES_SAFE has no effect for the same
// reason.
func ForkInit() error {
	fork.mu.Lock()
	defer fork.mu.Unlock()
	if !fork.enabled && fork.registered.Load() {
		return newError("fork_init", "", EINVAL, "memory is registered already; call ForkInit before the first registration")
	}
	fork.enabled = true
	return nil
}

// IsForkInitialized returns the status of the protection against fork (ibv_is_fork_initialized). Without ForkInit it
// is ForkUnneeded, since Go programs do not fork without exec.
func IsForkInitialized() ForkStatus {
	fork.mu.Lock()
	defer fork.mu.Unlock()
	if fork.enabled {
		return ForkEnabled
	}
	return ForkUnneeded
}

// memoryRegistered records the first registration, after which ForkInit fails.
func memoryRegistered() {
	if !fork.registered.Load() {
		fork.mu.Lock()
		fork.registered.Store(true)
		fork.mu.Unlock()
	}
}

// forkByEnvironment calls ForkInit if the environment requests it, once.
func forkByEnvironment(warnings io.Writer) {
	fork.asked.Do(func() {
		if !isSet("RDMAV_FORK_SAFE") && !isSet("IBV_FORK_SAFE") {
			return
		}
		if ForkInit() != nil {
			fmt.Fprintln(warnings, "libibverbs: Warning: fork()-safety requested but init failed")
		}
	})
}

// isSet reports whether an environment variable is set, even to the empty string.
func isSet(name string) bool {
	_, found := os.LookupEnv(name)
	return found
}

package verbs

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// ForkStatus tells of the protection against fork (enum ibv_fork_status).
type ForkStatus uint32

// The fork statuses (IBV_FORK_*).
const (
	ForkDisabled ForkStatus = 0
	ForkEnabled  ForkStatus = 1
	ForkUnneeded ForkStatus = 2 // nothing has to be protected
)

var forkStatusNames = []string{"DISABLED", "ENABLED", "UNNEEDED"}

// String is the name without IBV_FORK_.
func (s ForkStatus) String() string { return nameOf("ForkStatus", forkStatusNames, int64(s)) }

var fork struct {
	mu         sync.Mutex // so that ForkInit does not pass a registration
	enabled    bool
	registered atomic.Bool // some memory was registered
	asked      sync.Once   // whether the environment wants protection
}

// ForkInit asks for protection of registered memory when the process forks (ibv_fork_init). It must come before any
// memory is registered, else EINVAL; calling it again has no effect. The environment variables RDMAV_FORK_SAFE and
// IBV_FORK_SAFE, with whatever value, even an empty one, have the same effect when the devices are first listed or one
// is opened; rdma-core takes the value 0 as not set.
//
// A Go program cannot fork without exec: what os/exec starts never writes to the parent's pages. So there is nothing to
// do but to keep the rules, and nothing is lost without the call. Memory that C code of the program forks over is
// C code's to protect (madvise with MADV_DONTFORK). RDMAV_HUGEPAGES_SAFE has no effect for the same reason.
func ForkInit() error {
	fork.mu.Lock()
	defer fork.mu.Unlock()
	if !fork.enabled && fork.registered.Load() {
		return newError("fork_init", "", EINVAL, "memory has been registered already; the call must come first")
	}
	fork.enabled = true
	return nil
}

// IsForkInitialized tells whether registered memory is protected when the process forks (ibv_is_fork_initialized).
// Without ForkInit it is ForkUnneeded, since Go programs do not fork without exec.
func IsForkInitialized() ForkStatus {
	fork.mu.Lock()
	defer fork.mu.Unlock()
	if fork.enabled {
		return ForkEnabled
	}
	return ForkUnneeded
}

// memoryRegistered notes that it is too late for ForkInit.
func memoryRegistered() {
	if !fork.registered.Load() {
		fork.mu.Lock()
		fork.registered.Store(true)
		fork.mu.Unlock()
	}
}

// forkByEnvironment does what the environment asks for, once.
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

// isSet tells whether an environment variable exists, with whatever value.
func isSet(name string) bool {
	_, found := os.LookupEnv(name)
	return found
}

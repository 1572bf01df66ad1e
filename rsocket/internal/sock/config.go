package sock

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/environ"
)

// configDir is the folder of the configuration files.
var configDir atomic.Value

// SetConfigDir sets the folder of the configuration files. It has no effect after the first socket was made.
func SetConfigDir(dir string) { configDir.Store(dir) }

// Defaults are the values of the configuration files.
type Defaults struct {
	Options
	WakeUp time.Duration // the longest time between two looks of Poll
	// DefaultPolling says that no file sets the spin budget.
	DefaultPolling bool
}

// Config reads the files at its first call, and returns the same values from then on.
var Config = sync.OnceValue(func() Defaults { return readConfig(configPath()) })

// configPath returns the folder of the files: that of the environment, else that of SetConfigDir or the usual one.
func configPath() string {
	if dir := environ.Path("VERBENA_RSOCKET_CONFIG"); dir != "" {
		return dir
	}
	if dir, ok := configDir.Load().(string); ok {
		return dir
	}
	return "/etc/rdma/rsocket"
}

func readConfig(dir string) Defaults {
	d := Defaults{
		Options: Options{
			RecvBuf: max(1, number(dir, "mem_default", 131072)),
			SendBuf: number(dir, "wmem_default", 131072),
			SQSize:  number(dir, "sqsize_default", 384),
			RQSize:  number(dir, "rqsize_default", 384),
			Inline:  number(dir, "inline_default", 64),
			IOMaps:  number(dir, "iomap_size", 0),
			Polling: 10 * time.Microsecond,
		},
		WakeUp: time.Duration(number(dir, "wake_up_interval", 500)) * time.Millisecond,
	}
	polling := number(dir, "polling_time", -1)
	if d.DefaultPolling = polling < 0; !d.DefaultPolling {
		d.Polling = time.Duration(polling) * time.Microsecond
	}
	if d.SendBuf < 2048 {
		d.SendBuf = MinSendBuf
	}
	return d
}

// number reads one file. A file that is missing, or that holds anything but a number from 0 to 2^30, has the default.
func number(dir, name string, def int) int {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return def
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 || n > 1<<30 {
		return def
	}
	return n
}

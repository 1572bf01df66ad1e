package rsocket

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ConfigDir is where the configuration files are: mem_default, wmem_default, sqsize_default, rqsize_default, inline_default,
// iomap_size, polling_time and wake_up_interval, each of which holds one decimal number. A program that wants another folder
// sets it before it uses the package; so does the environment variable VERBENA_RSOCKET_CONFIG.
var ConfigDir = "/etc/rdma/rsocket"

// defaults are what the configuration files say.
type defaults struct {
	Options
	polling time.Duration // of busy waiting before a call sleeps
	wakeUp  time.Duration // Poll looks again at least so often
}

// config reads the files at the first use of the package.
var config = sync.OnceValue(func() defaults {
	dir := ConfigDir
	if d := os.Getenv("VERBENA_RSOCKET_CONFIG"); d != "" {
		dir = d
	}
	return readConfig(dir)
})

func readConfig(dir string) defaults {
	d := defaults{
		Options: Options{
			RecvBuf: max(1, number(dir, "mem_default", 131072)),
			SendBuf: number(dir, "wmem_default", 131072),
			SQSize:  number(dir, "sqsize_default", 384),
			RQSize:  number(dir, "rqsize_default", 384),
			Inline:  number(dir, "inline_default", 64),
			IOMaps:  number(dir, "iomap_size", 0),
		},
		polling: time.Duration(number(dir, "polling_time", 10)) * time.Microsecond,
		wakeUp:  time.Duration(number(dir, "wake_up_interval", 500)) * time.Millisecond,
	}
	if d.SendBuf < 2048 {
		d.SendBuf = minSendBuf
	}
	return d
}

// number reads one file. One that is missing, or holds something else, has the default.
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

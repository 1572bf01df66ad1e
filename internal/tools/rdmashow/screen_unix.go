//go:build unix

package rdmashow

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

func changes() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH, syscall.SIGCONT)
	return c
}

// suspend stops this process, and those that were started with it, with the terminal as it was, and returns when it is continued.
func (s *screen) suspend() {
	s.restore()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(time.Second / 10): // there is no shell to continue it, so it was not stopped
	}
	s.raw()
}

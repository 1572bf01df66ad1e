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

// suspend restores the terminal, stops this process group, and returns when it is continued.
func (s *screen) suspend() {
	s.restore()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(time.Second / 10): // no shell could continue the process, so the system did not stop it
	}
	s.raw()
}

package tool

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// passing lists the errors of Accept after which a server continues: a client that has closed its
// connection already, and a temporary lack of resources of the process or the system.
var passing = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET,
	syscall.EINTR,
}

// The first and the longest pause after an Accept that failed.
const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

// Accept returns l's next connection. Temporary errors do not end a server: Accept passes the first of a
// series to failed, which may be nil, and tries again after a pause, which doubles up to a second, as in
// net/http.
func Accept(l net.Listener, failed func(error)) (net.Conn, error) {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		c, err := l.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		if pause == shortPause && failed != nil {
			failed(err)
		}
		time.Sleep(pause)
	}
}

func passes(err error) bool {
	for _, p := range passing {
		if errors.Is(err, p) {
			return true
		}
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

package host

import (
	"net"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// The sign of a verbena serve is an abstract socket: the programs of all users find it, whatever their VERBENA_RUN.
// Another process may take its name: then a program with a wrong VERBENA_RUN waits longer for its error.
const unixgram = "unixgram"

func (k Key) sign() *net.UnixAddr { return &net.UnixAddr{Name: k.name() + "/serve", Net: unixgram} }

// putSign makes the sign of an address that this process serves. Programs can find its directory before.
func (k Key) putSign() *net.UnixConn {
	c, err := net.ListenUnixgram(unixgram, k.sign())
	if err != nil {
		return nil
	}
	fdset.AddConn(c)
	_ = c.CloseRead() // nobody reads it
	return c
}

// servedElsewhere reports whether a verbena serve has the address, given that this process does not find its directory.
func (k Key) servedElsewhere() bool {
	c, err := net.DialUnix(unixgram, nil, k.sign())
	if err != nil {
		return false
	}
	c.Close()
	return true
}

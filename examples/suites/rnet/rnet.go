// Package rnet has the functions of packages net and crypto/tls by which programs listen and dial, over RDMA. Suites
// replace the calls in other projects by these.
package rnet

import (
	"crypto/tls"
	"net"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rsocket"
)

// Listen is net.Listen over RDMA.
func Listen(network, address string) (net.Listener, error) { return rsocket.Listen(network, address) }

// Dial is net.Dial over RDMA.
func Dial(network, address string) (net.Conn, error) { return rsocket.Dial(network, address) }

// ListenTLS is tls.Listen over RDMA.
func ListenTLS(network, address string, c *tls.Config) (net.Listener, error) {
	l, err := rsocket.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, c), nil
}

// DialTLS is tls.Dial over RDMA.
func DialTLS(network, address string, c *tls.Config) (net.Conn, error) {
	conn, err := rsocket.Dial(network, address)
	if err != nil {
		return nil, err
	}
	if c.ServerName == "" && !c.InsecureSkipVerify {
		c = c.Clone()
		if c.ServerName, _, err = net.SplitHostPort(address); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	t := tls.Client(conn, c)
	if err := t.Handshake(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

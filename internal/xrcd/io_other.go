//go:build !linux

package xrcd

import (
	"io"
	"net"
)

func reader(u *net.UnixConn) io.Reader { return u }

func writer(u *net.UnixConn) io.Writer { return u }

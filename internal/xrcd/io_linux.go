package xrcd

import (
	"io"
	"net"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

func reader(u *net.UnixConn) io.Reader { return untrusted.Reader(u) }

func writer(u *net.UnixConn) io.Writer { return fdset.Writer(u) }

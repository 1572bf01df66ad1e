// Package socket is librdmacm's rsocket call by call, for programs that are ported from C or need what package net
// does not have: the flags and options of C, O_NONBLOCK, Poll and Select, also with ordinary descriptors, and IOMap
// and IOWrite, which place data in the peer's memory. Package rsocket has the same streams and datagrams with the
// interfaces of package net; either end may use either package, or C.
//
// The documentation of each symbol names its C twin, as in rsocket, rbind and rpoll. Constants have Linux's values
// on every system.
//
// Errors are *verbs.Error or have the errno alone; errors.Is finds the errno that the C function sets. The
// configuration is that of package rsocket: the files in /etc/rdma/rsocket, or in the folder that
// VERBENA_RSOCKET_CONFIG names.
//
// A Socket has the goroutines that package rsocket describes. Poll with ordinary descriptors sleeps in poll(2), which
// takes a thread. The package imports internal/{mr,notify,rs}, rdmacm, rsocket/internal/sock and
// golang.org/x/sys.
package socket

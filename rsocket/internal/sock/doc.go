// Package sock has the sockets behind rsocket and rsocket/socket: Stream, Datagram and Acceptor. It knows neither
// net.Conn nor the calls of C, but only what both need: modes of waiting, deadlines, readiness, IO maps and the
// configuration.
//
// It owns a Hub with one goroutine for each host with sockets, one goroutine for each Acceptor and two for each
// Datagram. It imports rdmacm, verbs, internal/{notify,rs,seam} and golang.org/x/sys.
package sock

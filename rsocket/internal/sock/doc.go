// Package sock has the sockets behind rsocket and rsocket/socket: Stream, Datagram and Acceptor. It knows neither
// net.Conn nor the calls of C, but only what both need: modes of waiting, deadlines, readiness, IO maps and the
// configuration.
//
//	stream.go        Stream: its state and errors; resources.go: its objects; connect.go, shutdown.go: start and end
//	io.go, iomap.go  sending and receiving; progress.go: completions; post.go, words.go: requests; keepalive.go
//	wait.go          calls that wait: spin.go, longpolls.go: polling; waiter.go: sleeping; poll.go: readiness for Poll
//	acceptor.go      Acceptor, a listening socket; hub.go: the events of the connection manager
//	datagram.go      Datagram, over UDP; datagram_qp.go: its QPs
//	options.go       sizes; config.go: the configuration files
//
// It owns a Hub with one goroutine for each host with sockets, one goroutine for each Acceptor and two for each
// Datagram. It imports rdmacm, verbs, internal/{environ,lookup,mr,notify,rs,seam,wire} and golang.org/x/sys.
package sock

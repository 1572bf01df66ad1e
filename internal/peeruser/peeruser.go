// Package peeruser tells whose process is at the other end of a unix socket, and whose limits count for it. It works on
// Linux. It imports golang.org/x/sys.
package peeruser

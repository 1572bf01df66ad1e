package tool

import (
	"errors"
	"net"
	"testing"
)

// Errors of the system's sockets are recognised, whatever its numbers.
func TestSocketErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if _, err := net.Listen("tcp", at); !InUse(err) || Refused(err) {
		t.Errorf("a second listener at %s: %v", at, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", at); !Refused(err) || InUse(err) {
		t.Errorf("a connection to %s, where nobody listens: %v", at, err)
	}
	if err := errors.New("other"); Refused(err) || InUse(err) || Refused(nil) || InUse(nil) {
		t.Error("other errors are taken for those of sockets")
	}
}

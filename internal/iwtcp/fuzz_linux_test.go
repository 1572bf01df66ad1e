package iwtcp

import (
	"net"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// FuzzListener sends bytes to a listener in two pieces. Whatever they are, the listener then takes a good request.
func FuzzListener(f *testing.F) {
	_, good := iwarp.Initiate(0, iwarp.Options{IRD: 1, ORD: 2, Private: []byte("hello")})
	_, probe := iwarp.Initiate(0, iwarp.Options{Private: []byte("the probe of this test")})
	f.Add(good, uint8(5))
	f.Add(good[:10], uint8(1))
	f.Add(append(append([]byte(nil), good...), 1, 2), uint8(20))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(3))
	asked := make(chan *Request, 16)
	l, err := Listen(loopbackAny, false, func(r *Request) { asked <- r })
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(l.Close)
	to := net.TCPAddrFromAddrPort(plain(l.l.Addr()))
	f.Fuzz(func(t *testing.T, b []byte, at uint8) {
		for _, data := range [][]byte{b, probe} {
			c, err := net.DialTCP("tcp", nil, to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			n := min(int(at), len(data))
			_, _ = c.Write(data[:n])
			_, _ = c.Write(data[n:])
			_ = c.CloseWrite()
		}
		for {
			select {
			case r := <-asked:
				private := string(r.Private())
				_ = r.Reject(nil)
				if private == "the probe of this test" {
					return
				}
			case <-time.After(time.Minute):
				t.Fatal("a good request is not reported")
			}
		}
	})
}

package rsocket_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/rpc"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
)

// The standard library's HTTP client and server, version 1 and 2, run unchanged over rsockets.
func TestHTTP(t *testing.T) {
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
			p := memory(t, rdmatest.Faults{Loss: 0.001})
			l := p.listen(rsocket.Options{})
			var protocols http.Protocols
			protocols.SetHTTP1(version == 1)
			protocols.SetUnencryptedHTTP2(version == 2)
			server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				if r.ProtoMajor != version {
					t.Errorf("version %d", r.ProtoMajor)
				}
				body, err := io.ReadAll(r.Body) // HTTP/1 permits no response before the end of the body
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(body)
			})}
			go func() { _ = server.Serve(l) }()
			d := p.dialer(rsocket.Options{})
			transport := &http.Transport{Protocols: &protocols,
				DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					return d.DialContext(ctx, network, address)
				}}
			client := &http.Client{Transport: transport}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					body := socktest.Text(1+i*100000, uint64(i))
					resp, err := client.Post("http://"+l.Addr().String()+"/", "application/octet-stream", bytes.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
						t.Errorf("%d bytes of %d, %v", len(got), len(body), err)
					}
				})
			}
			all.Wait()
			transport.CloseIdleConnections()
			p.OK(server.Shutdown(bg))
			p.Close()
		})
	}
}

func TestTLS(t *testing.T) {
	p := memory(t, rdmatest.Faults{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	_ = server.Listener.Close()
	server.Listener = p.listen(rsocket.Options{})
	server.StartTLS()
	client := server.Client()
	transport := client.Transport.(*http.Transport)
	transport.DialContext = p.dialer(rsocket.Options{}).DialContext
	transport.TLSClientConfig.ServerName = "example.com" // which is in httptest's certificate
	body := socktest.Text(300000, 1)
	resp := must(client.Post(server.URL, "application/octet-stream", bytes.NewReader(body)))(p)
	if got := must(io.ReadAll(resp.Body))(p); !bytes.Equal(got, body) {
		t.Errorf("%d bytes of %d", len(got), len(body))
	}
	p.OK(resp.Body.Close())
	server.Close()
	p.Close()
}

type Arith struct{}

func (Arith) Add(args [2]int, sum *int) error {
	*sum = args[0] + args[1]
	return nil
}

func TestNetRPC(t *testing.T) {
	p := memory(t, rdmatest.Faults{})
	l := p.listen(rsocket.Options{})
	server := rpc.NewServer()
	p.OK(server.Register(Arith{}))
	go server.Accept(l)
	conn := must(p.dialer(rsocket.Options{}).Dial("tcp", l.Addr().String()))(p)
	client := rpc.NewClient(conn)
	for i := range 100 {
		var sum int
		if err := client.Call("Arith.Add", [2]int{i, 1}, &sum); err != nil || sum != i+1 {
			t.Fatal(sum, err)
		}
	}
	p.OK(client.Close())
	p.OK(l.Close())
	p.Close()
}

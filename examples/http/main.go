// Http is a web server and a client over RDMA: net/http with the listener and the dialer of package rsocket.
//
//	http -serve :8080                    a server
//	http -get http://192.0.2.1:8080/     a client
//	http                                 both, for one page
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

var (
	serve = flag.String("serve", "", "only serve, at this address, such as :8080 (default: serve and get one page)")
	get   = flag.String("get", "", "only get this URL, such as http://192.0.2.1:8080/")
)

func main() {
	flag.Parse()
	if *get != "" {
		show(*get)
		return
	}
	at := *serve
	if at == "" {
		at = deviceAddr() + ":0"
	}
	l, err := rsocket.Listen("tcp", at)
	check(err)
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s over RDMA, you asked for %s\n", r.RemoteAddr, r.URL.Path)
	})
	if *serve != "" {
		log.Printf("serving at %v", l.Addr())
		log.Fatal(http.Serve(l, hello))
	}
	go func() { log.Print(http.Serve(l, hello)) }()
	show("http://" + l.Addr().String() + "/example")
}

// deviceAddr returns an address of the first RDMA device, an IPv4 one if it has any.
func deviceAddr() string {
	vctx, err := verbs.Open("")
	check(err)
	defer vctx.Close()
	table, err := vctx.QueryGIDTable()
	check(err)
	for _, e := range table {
		if a := e.GID.Addr(); a.Is4() {
			return a.String()
		}
	}
	return "[" + table[0].GID.Addr().String() + "]"
}

// show gets a page over RDMA and prints it.
func show(url string) {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return rsocket.DialContext(ctx, network, address)
	}}
	resp, err := (&http.Client{Transport: transport}).Get(url)
	check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(err)
	fmt.Printf("%s: %s", resp.Status, body)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

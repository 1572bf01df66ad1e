// Http is a web server and a client over RDMA. Both are those of net/http: only the listener and the dialer are rsocket's.
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
	serve = flag.String("serve", "", "serve at this address only, such as :8080; without it the program asks itself")
	get   = flag.String("get", "", "get this URL only, such as http://192.0.2.1:8080/")
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

// deviceAddr is an address of the first RDMA device.
func deviceAddr() string {
	ctx, err := verbs.Open("")
	check(err)
	defer ctx.Close()
	table, err := ctx.QueryGIDTable()
	check(err)
	for _, e := range table {
		if a := e.GID.Addr(); a.Is4() {
			return a.String()
		}
	}
	return "[" + table[0].GID.Addr().String() + "]"
}

// show gets a page through RDMA.
func show(url string) {
	transport := &http.Transport{DialContext: func(c context.Context, network, address string) (net.Conn, error) {
		return rsocket.DialContext(c, network, address)
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

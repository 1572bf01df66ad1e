// Kv is a key-value store over RDMA. Clients read with one-sided RDMA READs: the server's program is not involved. They
// write with messages.
//
//	kv -serve :7480              a server
//	kv -at 192.0.2.1:7480 put KEY VALUE
//	kv -at 192.0.2.1:7480 get KEY
//	kv -at 192.0.2.1:7480 delete KEY
//	kv                           a server, three clients, and a summary
//
//	table.go   the memory that clients READ, versions and checksums, the messages
//	server.go  clients and their requests
//	client.go  get, put, remove
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

var (
	at    = flag.String("at", "", "the server, host:port")
	serve = flag.String("serve", "", "only serve, at this address, such as :7480")
	slots = flag.Int("slots", 1<<16, "size of the table, a power of 2; a slot takes 256 bytes")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case *serve != "":
		err = runServer(ctx, *serve, func(address string) { fmt.Println("serving at", address) })
	case *at != "":
		err = command(ctx, *at, flag.Args())
	case flag.NArg() > 0:
		err = errors.New("no server: name one with -at HOST:PORT")
	default:
		err = demo(ctx)
	}
	if err != nil {
		log.Fatal("kv: ", err)
	}
}

// runServer serves until ctx is done, and calls ready with its address.
func runServer(ctx context.Context, address string, ready func(address string)) error {
	t, err := newTable(*slots)
	if err != nil {
		return err
	}
	l, err := rdmacm.Listen(ctx, address, nil)
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	s := &server{table: t, l: l}
	return errors.Join(s.serve(ctx), l.Close())
}

// command executes one command of the user.
func command(ctx context.Context, address string, args []string) (err error) {
	want := map[string]int{"get": 2, "put": 3, "delete": 2}
	if len(args) == 0 || len(args) != want[args[0]] {
		return errors.New("must be get KEY, put KEY VALUE or delete KEY")
	}
	c, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	switch args[0] {
	case "put":
		version, err := c.put(ctx, args[1], []byte(args[2]), anyVersion)
		if err == nil {
			fmt.Println("version", version)
		}
		return err
	case "delete":
		return c.remove(ctx, args[1], anyVersion)
	}
	value, version, err := c.get(ctx, args[1])
	if err == nil {
		fmt.Printf("%q version %d\n", value, version)
	}
	return err
}

// demo runs a server and three clients that increment one counter with compare and put.
func demo(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	address, err := deviceAddr()
	if err != nil {
		return err
	}
	ready, ended := make(chan string), make(chan error, 1)
	go func() { ended <- runServer(ctx, address+":0", func(a string) { ready <- a }) }()
	select {
	case address = <-ready:
	case err := <-ended:
		return err
	}
	const clients, rounds = 3, 100
	var all sync.WaitGroup
	errs := make([]error, clients)
	for i := range clients {
		all.Go(func() { errs[i] = increment(ctx, address, rounds) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := command(ctx, address, []string{"get", "counter"}); err != nil {
		return err
	}
	stop()
	return <-ended
}

// increment adds 1 to a counter several times. If another client was faster it tries again.
func increment(ctx context.Context, address string, rounds int) (err error) {
	c, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for done := 0; done < rounds; {
		n := 0
		value, version, err := c.get(ctx, "counter")
		switch {
		case errors.Is(err, errNotFound):
			version = noVersion
		case err != nil:
			return err
		default:
			if _, err := fmt.Sscan(string(value), &n); err != nil {
				return err
			}
		}
		switch _, err = c.put(ctx, "counter", fmt.Append(nil, n+1), version); {
		case err == nil:
			done++
		case !errors.Is(err, errVersion):
			return err
		}
	}
	return nil
}

// deviceAddr returns an address of the first RDMA device, an IPv4 one if it has any.
func deviceAddr() (string, error) {
	vctx, err := verbs.Open("")
	if err != nil {
		return "", err
	}
	defer vctx.Close()
	table, err := vctx.QueryGIDTable()
	if err != nil {
		return "", err
	}
	for _, e := range table {
		if a := e.GID.Addr(); a.Is4() {
			return a.String(), nil
		}
	}
	return "[" + table[0].GID.Addr().String() + "]", nil
}

package umad_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/umad"
)

// One host sends a request, the other one answers. Here both are on a network in memory; a program opens a device of
// verbs.Devices.
func Example() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	client, server := openPort(f, "a"), openPort(f, "b") // 198.18.0.1 and .2

	answers, err := server.Register(umad.Registration{Class: umad.ClassPerf, Methods: []uint8{umad.MethodGet}})
	check(err)
	go func() {
		question, err := answers.Recv(context.Background())
		check(err)
		check(answers.Reply(question, 0, []byte("42")))
	}()

	asks, err := client.Register(umad.Registration{}) // for answers only
	check(err)
	question := umad.New(umad.Header{
		Class: umad.ClassPerf, ClassVersion: 1, Method: umad.MethodGet, AttrID: umad.AttrClassPortInfo,
	}, []byte("how many?"))
	// asks three times more if nothing comes
	answer, err := asks.Call(context.Background(), &toB, question, time.Second, 3)
	check(err)
	fmt.Printf("%s\n", answer.MAD.Data()[:2])

	check(client.Close())
	check(server.Close())
	// Output: 42
}

func openPort(f *rdmatest.Fabric, name string) *umad.Port {
	dev, err := f.NewDevice(name)
	check(err)
	p, err := umad.Open(dev)
	check(err)
	return p
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

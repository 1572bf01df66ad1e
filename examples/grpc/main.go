// Grpc is a gRPC server and a client over RDMA. Both are those of google.golang.org/grpc: only the listener and the dialer are
// rsocket's. The service is gRPC's own health check, so that nothing needs to be generated. It is a module of its own, to keep gRPC
// out of Verbena's.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

func main() {
	l, err := rsocket.Listen("tcp", deviceAddr()+":0")
	check(err)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { check(server.Serve(l)) }()

	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(c context.Context, address string) (net.Conn, error) {
			return rsocket.DialContext(c, "tcp", address)
		}))
	check(err)
	c, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(c, &grpc_health_v1.HealthCheckRequest{})
	check(err)
	fmt.Printf("gRPC over RDMA at %v: %v\n", l.Addr(), answer.GetStatus())
	check(conn.Close())
	server.GracefulStop()
}

// deviceAddr is an IPv4 address of the first RDMA device.
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
	log.Fatal("the device has no IPv4 address")
	return ""
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

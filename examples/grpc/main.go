// Grpc is a gRPC server and a client over RDMA: google.golang.org/grpc with the listener and the dialer of package
// rsocket. The service is gRPC's health check, which needs no generated code. The example is a separate module, so that
// Verbena's module does not depend on gRPC.
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

	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return rsocket.DialContext(ctx, "tcp", address)
		}))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	check(err)
	fmt.Printf("gRPC over RDMA at %v: %v\n", l.Addr(), answer.GetStatus())
	check(conn.Close())
	server.GracefulStop()
}

// deviceAddr returns an IPv4 address of the first RDMA device.
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
	log.Fatal("the device has no IPv4 address")
	return ""
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

package main

import (
	"context"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/verbena-rdma/verbena/examples/internal/output"
	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rsocket"
)

var addr = loopback.Addr(1)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_grpc="+addr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The client asks the server for its health, over RDMA.
func TestHealth(t *testing.T) {
	want := regexp.MustCompile(`^gRPC over RDMA at ` + regexp.QuoteMeta(addr) + `:\d+: SERVING\n$`)
	if got := output.Of(t, main); !want.MatchString(got) {
		t.Errorf("printed %q", got)
	}
}

// The interoperability tests of gRPC pass over RDMA, without and with TLS. Their functions end the process if they
// fail.
func TestInterop(t *testing.T) {
	for name, c := range map[string]struct {
		server, client credentials.TransportCredentials
	}{
		"plain": {insecure.NewCredentials(), insecure.NewCredentials()}, "tls": secure(t),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := rsocket.Listen("tcp", addr+":0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer(grpc.Creds(c.server))
			testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(l) }()
			conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(c.client),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					return rsocket.DialContext(ctx, "tcp", address)
				}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			tc := testgrpc.NewTestServiceClient(conn)
			for _, do := range []func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
				interop.DoEmptyUnaryCall, interop.DoLargeUnaryCall, interop.DoClientStreaming, interop.DoServerStreaming,
				interop.DoPingPong, interop.DoEmptyStream, interop.DoTimeoutOnSleepingServer, interop.DoCancelAfterBegin,
				interop.DoCancelAfterFirstResponse, interop.DoCustomMetadata, interop.DoStatusCodeAndMessage,
				interop.DoSpecialStatusMessage,
			} {
				do(ctx, tc)
			}
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
			interop.DoUnimplementedMethod(ctx, conn)
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			server.GracefulStop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// secure returns the credentials of a server with a certificate of its own and of a client that trusts it.
func secure(t *testing.T) (c struct {
	server, client credentials.TransportCredentials
}) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil) // it has a certificate for 127.0.0.1
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c.server = credentials.NewServerTLSFromCert(&s.TLS.Certificates[0])
	c.client = credentials.NewClientTLSFromCert(roots, "127.0.0.1")
	return c
}

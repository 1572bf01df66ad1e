package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_example="+loopback.Addr(1)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Both ends run in this process. Their output must be that of the manual's program.
func TestV_APP_01_TypicalApplication(t *testing.T) {
	port, err := strconv.Atoi(loopback.Port())
	if err != nil {
		t.Fatal(err)
	}
	var server, client strings.Builder
	done := make(chan error, 1)
	go func() { done <- run(config{tcpPort: port, port: 1, gidIndex: 1}, &server) }()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := run(config{server: "127.0.0.1", tcpPort: port, port: 1, gidIndex: 1}, &client)
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "refused") || time.Now().After(end) { // the server does not listen yet
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := "Message is: 'SEND operation'\nContents of server's buffer: 'RDMA read operation'\n" +
		"Now replacing it with: 'RDMA write operation'\n"; client.String() != want {
		t.Errorf("the client's output:\n%s", &client)
	}
	if want := "Contents of server buffer: 'RDMA write operation'\n"; server.String() != want {
		t.Errorf("the server's output:\n%s", &server)
	}
}

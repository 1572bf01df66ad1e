package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

const xsrqLine = `%8s: LID 0000, QPN RECV [0-9a-f]{6} SEND [0-9a-f]{6}, PSN [0-9a-f]{6}, SRQN [0-9a-f]{6}, ` +
	`GID ::ffff:127\.4\.\d+\.\d+\n`

// One server, and clients in processes of their own.
func TestXSRQPingpong(t *testing.T) {
	for way, options := range []string{
		"", "-e", "-n 300", "-n 300 -e -m 256 -s 10000", "-s 0 -n 1", "-m 4096 -s 65536 -n 50", "-c 3 -n 100",
		"-c 3 -n 50 -e", "-o", "-d vrb_test -g 1 -c 2",
	} {
		t.Run(strings.ReplaceAll(options, " ", "_"), func(t *testing.T) {
			at := func(client int) string { return loopback.Addr(20 + client) }
			if w := ways[way%len(ways)]; sharing() {
				t.Setenv("VERBENA_SHM", w.shm)
				if w.client == serverAddr {
					at = func(int) string { return serverAddr }
				}
			}
			clients := 1
			if _, after, ok := strings.Cut(options, "-c "); ok {
				fmt.Sscan(after, &clients)
			}
			args := append(strings.Fields(options), "-p", loopback.Port())
			s, serverOut, serverErr := start(t, serverAddr, "ibv_xsrq_pingpong", args...)
			outs, errs, ends := make([]*bytes.Buffer, clients), make([]*bytes.Buffer, clients), make([]error, clients)
			var running sync.WaitGroup
			for i := range clients { // the server begins when it has all
				running.Go(func() {
					line := append(args[:len(args):len(args)], serverAddr)
					outs[i], errs[i], ends[i] = runClient(t, at(i), "ibv_xsrq_pingpong", line...)
				})
			}
			running.Wait()
			for i, err := range ends {
				if err != nil {
					_ = s.Process.Kill()
					_ = s.Wait()
					t.Fatalf("client: %v\n%s%s\nserver:\n%s%s", err, outs[i], errs[i], serverOut, serverErr)
				}
			}
			if err := s.Wait(); err != nil {
				t.Fatalf("server: %v\n%s%s", err, serverOut, serverErr)
			}
			remote, local := fmt.Sprintf(xsrqLine, "remote"), fmt.Sprintf(xsrqLine, "local")
			want := regexp.MustCompile(fmt.Sprintf("^(%s%s){%d}success\n$", remote, local, clients))
			if !want.MatchString(serverOut.String()) {
				t.Errorf("server:\n%s", serverOut)
			}
			for _, out := range outs {
				if !regexp.MustCompile("^" + local + remote + "success\n$").MatchString(out.String()) {
					t.Errorf("client:\n%s", out)
				}
			}
		})
	}
}

func TestXSRQPingpongRefuses(t *testing.T) {
	for options, want := range map[string]string{
		"-d mlx5_0":               `no device is named "mlx5_0"`,
		"-d vrb_test -g 1 -i 2":   "port 2: must be 1 to 1",
		"-p 1 localhost":          "couldn't connect to localhost:1",
		"-d vrb_test -g 99999999": "index 99999999",
	} {
		out, errs, status := output(t, "ibv_xsrq_pingpong", strings.Fields(options)...)
		if status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d\n%s%s", options, status, out, errs)
		}
	}
}

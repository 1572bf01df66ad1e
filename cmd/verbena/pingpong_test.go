package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// The addresses of the two ends, and that of the device of a single program.
var (
	serverAddr = loopback.Addr(4)
	clientAddr = loopback.Addr(5)
	ownAddr    = loopback.Addr(1)
)

// ways lists the paths between the two ends of a pingpong; the tests use them in turn.
var ways = []struct{ client, shm string }{
	{serverAddr, "1"}, // both on one address, by default through shared memory
	{serverAddr, "0"}, // the same over UDP
	{clientAddr, "1"},
}

// sharing reports whether processes can share an address, which plain sockets do not let them.
func sharing() bool { return runtime.GOOS == "linux" && os.Getenv("VERBENA_UDP") != "plain" }

// play runs both ends of a pingpong and returns their output.
func play(t *testing.T, way int, name, options string) (server, client string) {
	t.Helper()
	server, client, err := meet(t, way, name, options)
	if err != nil {
		t.Fatalf("client: %v\n%s\nserver:\n%s", err, client, server)
	}
	return server, client
}

// meet is play for a client that may fail; its output contains its errors then.
func meet(t *testing.T, way int, name, options string) (server, client string, failed error) {
	t.Helper()
	at := clientAddr
	if w := ways[way%len(ways)]; sharing() {
		t.Setenv("VERBENA_SHM", w.shm)
		at = w.client
	}
	args := append(strings.Fields(options), "-p", loopback.Port())
	side := func(s string) []string { // each end writes its own file
		return strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "SIDE", s))
	}
	s, serverOut, serverErr := start(t, serverAddr, name, side("server")...)
	clientOut, clientErr, failed := runClient(t, at, name, append(side("client"), serverAddr)...)
	if failed != nil {
		_ = s.Process.Kill()
	}
	if err := s.Wait(); err != nil && failed == nil {
		t.Fatalf("server: %v\n%s%s", err, serverOut, serverErr)
	}
	if failed != nil {
		return serverOut.String() + serverErr.String(), clientOut.String() + clientErr.String(), failed
	}
	return serverOut.String(), clientOut.String(), nil
}

// runClient runs a client to its end, and again for at most 20 seconds while its server does not listen yet.
func runClient(t *testing.T, addr, name string, args ...string) (stdout, stderr *bytes.Buffer, err error) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var c *exec.Cmd
		c, stdout, stderr = start(t, addr, name, args...)
		if err = c.Wait(); err == nil || time.Since(begin) > 20*time.Second ||
			!strings.Contains(stderr.String(), "couldn't connect") {
			return stdout, stderr, err
		}
	}
}

// The output of a run: a local and a remote address for each QP, then the result.
const (
	local  = `  local address:  LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}%s GID ::ffff:127\.4\.\d+\.[45]\n`
	remote = `  remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\.4\.\d+\.[45]\n`
	result = `%d bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec\n%d iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter\n$`
	cycles = `Max receive completion clock cycles = [1-9]\d*\nMin receive completion clock cycles = \d+\n` +
		`Average receive completion clock cycles = \d+\.\d{6}\n$`
)

func TestPingpong(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
	}{
		{"ibv_rc_pingpong", []string{
			"", "-e", "-c -s 65536", "-m 256 -c", "-m 512", "-m 2048 -s 65536", "-m 4096 -s 65536", "-s 0", "-s 1", "-s 4095",
			"-s 4097", "-r 2 -n 50", "-g 1 -d vrb_test", "-s 1048576 -n 5",
			"-o -c -s 10000", "-o -P", "-O -c -s 10000", "-O -P", "-j -c -s 9000", "-j -e", "-t", "-t -e -c",
			"-N -c -s 5000", "-N -e -t -o", "-j -t -N -c",
		}},
		{"ibv_uc_pingpong", []string{"", "-e -c", "-m 256 -s 4097", "-m 4096 -s 65536 -n 50", "-s 0", "-s 1"}},
		{"ibv_ud_pingpong", []string{"", "-e -c", "-s 0", "-s 1", "-s 4095", "-s 4096 -c", "-g 1"}},
		{"ibv_srq_pingpong", []string{"", "-e -c", "-q 1 -s 1", "-q 3 -r 7 -m 256", "-o -c", "-q 255 -n 300",
			"-s 65536 -m 4096"}},
	} {
		for way, options := range c.options {
			t.Run(strings.ReplaceAll(c.name+" "+options, " ", "_"), func(t *testing.T) {
				size, iters, qps, colon := 4096, 200, 1, ","
				switch c.name {
				case "ibv_ud_pingpong":
					size, colon = 1024, ":"
				case "ibv_srq_pingpong":
					qps = 16
				}
				if !strings.Contains(options, "-n") {
					options += " -n 200"
				}
				words := strings.Fields(options)
				for i, w := range words {
					switch w {
					case "-s":
						fmt.Sscan(words[i+1], &size)
					case "-n":
						fmt.Sscan(words[i+1], &iters)
					case "-q":
						fmt.Sscan(words[i+1], &qps)
					}
				}
				server, client := play(t, way, c.name, options)
				end, lines := result, 2*qps+2
				if slices.Contains(words, "-t") {
					end, lines = strings.TrimSuffix(result, "$")+cycles, lines+3
				}
				want := regexp.MustCompile(fmt.Sprintf(`^(`+local+`)+(`+remote+`)+`+end, colon, 2*size*iters, iters))
				for _, out := range []string{server, client} {
					if !want.MatchString(out) || strings.Count(out, "\n") != lines {
						t.Errorf("%d addresses, and a result like %s, were expected:\n%s", 2*qps, want, out)
					}
				}
			})
		}
	}
}

func TestPingpongRefuses(t *testing.T) {
	for options, want := range map[string]string{
		"ibv_rc_pingpong -d mlx5_0":             `no device is named "mlx5_0"; there are vrb_test`,
		"ibv_rc_pingpong -d vrb_test -g 999":    "entry 999 of port 1 is empty; verbena show_gids",
		"ibv_rc_pingpong -i 2 -d vrb_test -g 1": "port 2: must be 1 to 1",
		"ibv_rc_pingpong -d vrb_test -g 1 -j -s 268435457": "vrb_test does not have 268435457 bytes of device memory; " +
			"it has 268435456",
		"ibv_ud_pingpong -d vrb_test -g 1 -s 4097": "larger than port MTU (4096)",
		"ibv_rc_pingpong -p 1 localhost":           "; start the server first, with the same -p",
	} {
		words := strings.Fields(options)
		out, errs, status := output(t, words[0], words[1:]...)
		if status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d\n%s%s", options, status, out, errs)
		}
	}
}

// TestSecondPort: -i names a port of a device with several ports. The path leaves from an address of that port.
func TestSecondPort(t *testing.T) {
	second := loopback.Addr(14)
	server, client := serverAddr+"/"+second, clientAddr+"/"+loopback.Addr(15)
	for _, tool := range []string{"ibv_rc_pingpong", "ib_send_bw"} {
		t.Run(tool, func(t *testing.T) {
			args := []string{"-i", "2", "-n", "10", "-p", loopback.Port()}
			s, serverOut, serverErr := start(t, server, tool, args...)
			out, errs, err := runClient(t, client, tool, append(args, serverAddr)...)
			if err != nil {
				_ = s.Process.Kill()
				_ = s.Wait()
				t.Fatalf("client: %v %s%s\nserver: %s%s", err, out, errs, serverOut, serverErr)
			}
			_ = s.Wait()
			if text := out.String(); !strings.Contains(text, second) && !strings.Contains(text, decimals(second)) {
				t.Errorf("the path does not lead to port 2:\n%s", text)
			}
		})
	}
}

// decimals returns an IPv4 address as perftest prints it.
func decimals(addr string) string {
	a := netip.MustParseAddr(addr).As4()
	return fmt.Sprintf("%02d:%02d:%02d:%02d", a[0], a[1], a[2], a[3])
}

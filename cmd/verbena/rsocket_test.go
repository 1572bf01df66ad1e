package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// against runs a tool as server and as client until the client succeeds: the server may need a moment to
// listen. It returns the output of both.
func against(t *testing.T, tool, server, client string) (serverOut, clientOut string) {
	t.Helper()
	return pairOf(t, tool, server, tool, client)
}

// pairOf is against for two tools that belong together. Each try has a server of its own: a client that comes too early
// may have made some of its connections.
func pairOf(t *testing.T, tool, server, other, client string) (serverOut, clientOut string) {
	t.Helper()
	for try := 0; ; try++ {
		s, sOut, sErr := start(t, serverAddr, tool, strings.Fields(server)...)
		ended := make(chan error, 1)
		go func() { ended <- s.Wait() }()
		time.Sleep(time.Duration(try) * 100 * time.Millisecond)
		c, cOut, cErr := start(t, clientAddr, other, strings.Fields(client)...)
		err := c.Wait()
		if err != nil {
			serverErr, stopped := errors.New("it runs"), false
			select {
			case serverErr = <-ended: // another try is useless, unless the client came too early
				stopped = !strings.Contains(cErr.String(), "listens")
			case <-time.After(100 * time.Millisecond):
				_ = s.Process.Kill()
				<-ended
			}
			if stopped || try == 20 {
				t.Fatalf("client: %v\n%s%s\nserver: %v\n%s%s", err, cOut, cErr, serverErr, sOut, sErr)
			}
			continue
		}
		if tool == "rcopy" || tool == "udpong" { // serve for ever
			_ = s.Process.Kill()
			<-ended
		} else if err := <-ended; err != nil {
			t.Fatalf("server: %v\n%s%s", err, sOut, sErr)
		}
		return sOut.String(), cOut.String()
	}
}

func TestRSocketTools(t *testing.T) {
	const head = `^name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n`
	streams := regexp.MustCompile(head +
		`custom    4k      50      2       800k        \d+\.\d\ds +\d+\.\d\d +\d+\.\d\d\n$`)
	for _, tool := range []string{"rstream", "riostream"} {
		for _, options := range []string{"", "-T b -T v", "-T a"} {
			t.Run(tool+options, func(t *testing.T) {
				args := "-S 4096 -C 50 -I 2 " + options
				s, c := against(t, tool, "-b "+serverAddr+" "+args, "-s "+serverAddr+" "+args)
				for _, out := range []string{s, c} {
					if !streams.MatchString(out) {
						t.Errorf("it printed\n%s", out)
					}
				}
			})
		}
	}
	t.Run("udpong", func(t *testing.T) {
		_, c := against(t, "udpong", "-b "+serverAddr, "-s "+serverAddr+" -S 64 -C 50 -T e")
		if !regexp.MustCompile(`\ncustom    64      100     6\.2k +\d+\.\d\ds`).MatchString(c) {
			t.Errorf("it printed\n%s", c)
		}
	})
	t.Run("rcopy", func(t *testing.T) {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		data := bytes.Repeat([]byte("verbena "), 300000)
		if err := os.WriteFile(from, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, c := against(t, "rcopy", "--folder "+dir, from+" "+serverAddr+":"+to)
		got, err := os.ReadFile(to)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("the copy has %d bytes of %d, %v", len(got), len(data), err)
		}
		if !strings.HasPrefix(c, "opening...transferring...closing...done\n2400000 bytes in ") ||
			!strings.Contains(s, "client: "+clientAddr+"\n") {
			t.Errorf("the client printed\n%s\nthe server\n%s", c, s)
		}
	})
}

// A client without a server ends within seconds. Its error names the operation, the address and what to check.
func TestRSocketToolsWithoutServer(t *testing.T) {
	nobody := loopback.Addr(77)
	for _, c := range []struct{ tool, options, port string }{
		{"rstream", "", "7471"}, {"rstream", "-T b", "7471"}, {"rstream", "-T a", "7471"}, {"riostream", "", "7471"},
		{"udpong", "", "7174"}, {"udpong", "-T s", "7174"}, {"rcopy", "rsocket_test.go", "7427"},
	} {
		t.Run(c.tool+c.options, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(c.options), "-s", nobody)
			if c.tool == "rcopy" {
				args = []string{c.options, nobody}
			}
			begin := time.Now()
			_, errs, status := output(t, c.tool, args...)
			if status == 0 || !regexp.MustCompile(`connect|login`).MatchString(errs) ||
				!strings.Contains(errs, nobody+":"+c.port) || !strings.Contains(errs, "is closed") && runtime.GOOS == "linux" {
				t.Errorf("status %d: %s", status, errs)
			}
			if took := time.Since(begin); took > 30*time.Second { // udpong needed 60 s
				t.Errorf("after %v", took)
			}
		})
	}
}

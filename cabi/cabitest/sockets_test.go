//go:build linux

package cabitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// onSockets returns the command line of a program of ordinary sockets.
func onSockets(args ...string) []string {
	return append([]string{verbena, "run", "--sockets", "--"}, args...)
}

// page writes a file of a web server and returns its folder.
func page(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	output(t, "dd", "if=/dev/urandom", "of="+filepath.Join(dir, "page"), "bs=1M", "count=3", "status=none")
	return dir
}

// fetched gets the page with curl, and compares it.
func fetched(t *testing.T, dir, port string) {
	t.Helper()
	got := filepath.Join(t.TempDir(), "got")
	output(t, onSockets("curl", "-sS", "--fail", "-o", got, "http://127.0.0.1:"+port+"/page")...)
	output(t, "cmp", filepath.Join(dir, "page"), got)
}

// Python's server accepts with accept4 and waits with poll.
func TestSocketsOfPythonAndCurl(t *testing.T) {
	needs(t, "python3", "curl", "dd", "cmp")
	dir, port := page(t), loopback.Port()
	s := start(t, nil,
		onSockets("python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", dir, port)...)
	accepts(t, s)
	fetched(t, dir, port)
	if p := start(t, nil, "curl", "-sS", "http://127.0.0.1:"+port+"/page"); p.wait() == nil {
		t.Error("the server accepts TCP connections")
	}
}

const nginxConf = `
master_process %[3]s;
worker_processes 2;
daemon off;
pid %[1]s/pid;
error_log %[1]s/log info;
events { use epoll; }
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s;
	uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	sendfile on;
	tcp_nopush on;
	server { listen 127.0.0.1:%[2]s; root %[1]s; }
}
`

// nginx waits with edges of epoll, and sends files. A signal ends it while it waits.
func TestSocketsOfNginx(t *testing.T) { nginx(t, "off", accepts) }

// The workers have the listener of their parent, and open devices of their own. The port is one of TCP at first.
func TestR_PRE_04_WorkersOfNginx(t *testing.T) {
	t.Setenv("RDMAV_FORK_SAFE", "1")
	nginx(t, "on", nil)
}

// nginx fetches pages from a server that begins with or without a process for itself, and ends it.
func nginx(t *testing.T, master string, ready func(*testing.T, *process)) {
	t.Helper()
	needs(t, "nginx", "curl", "dd", "cmp")
	dir, port := page(t), loopback.Port()
	conf := filepath.Join(dir, "conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, port, master), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, nil, onSockets("nginx", "-c", conf)...)
	if ready != nil {
		ready(t, s)
	} else {
		listens(t, s, port)
	}
	for range 3 {
		fetched(t, dir, port)
	}
	if err := s.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(); err != nil {
		t.Errorf("nginx: %v\n%s", err, s.out.String())
	}
}

// socat forks for each connection, and waits with select before its first I/O.
func TestR_PRE_04_SocatForks(t *testing.T) {
	needs(t, "socat")
	t.Setenv("RDMAV_FORK_SAFE", "1")
	port := loopback.Port()
	s := start(t, nil, onSockets("socat", "TCP-LISTEN:"+port+",fork,reuseaddr", "PIPE")...)
	listens(t, s, port)
	for _, word := range []string{"first", "second"} {
		out := output(t, onSockets("sh", "-c", "echo "+word+" | socat -t10 - TCP:127.0.0.1:"+port)...)
		if !strings.Contains(out, word) {
			t.Errorf("%q, without %q", out, word)
		}
	}
}

// Two processes of rsync use one connection, so its sockets stay TCP.
func TestSocketsOfRsync(t *testing.T) {
	needs(t, "rsync", "dd", "cmp")
	for _, fork := range []string{"0", "1"} {
		t.Setenv("RDMAV_FORK_SAFE", fork)
		dir, port := page(t), loopback.Port()
		conf := filepath.Join(t.TempDir(), "conf")
		if err := os.WriteFile(conf, []byte("use chroot = no\n[m]\npath = "+dir+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		s := start(t, nil, onSockets("rsync", "--daemon", "--no-detach", "--config="+conf, "--port="+port)...)
		listens(t, s, port)
		got := t.TempDir()
		output(t, onSockets("rsync", "-a", "rsync://127.0.0.1:"+port+"/m/", got)...)
		output(t, "cmp", filepath.Join(dir, "page"), filepath.Join(got, "page"))
		if err := s.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// redis-server waits with levels of epoll, and its benchmark has 20 connections.
func TestSocketsOfRedis(t *testing.T) {
	needs(t, "redis-server", "redis-benchmark", "redis-cli")
	port := loopback.Port()
	s := start(t, nil,
		onSockets("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())...)
	accepts(t, s)
	out := output(t,
		onSockets("redis-benchmark", "-p", port, "-n", "500", "-c", "20", "-t", "set,get,lrange_100", "-q")...)
	if strings.Count(out, "requests per second") != 4 || strings.Contains(out, "rror") {
		t.Errorf("redis-benchmark:\n%s", out)
	}
	output(t, onSockets("redis-cli", "-p", port, "shutdown", "nosave")...)
	if err := s.wait(); err != nil {
		t.Errorf("redis-server: %v\n%s", err, s.out.String())
	}
}

// iperf3 waits with select, and has several connections.
func TestSocketsOfIperf(t *testing.T) {
	needs(t, "iperf3")
	port := loopback.Port()
	meet(t, nil, false, onSockets("iperf3", "-s", "-1", "-p", port),
		onSockets("iperf3", "-c", "127.0.0.1", "-p", port, "-n", "20M", "-P", "2"))
}

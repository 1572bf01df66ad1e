package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// proxyDescriptors opens more connections to rproxy than its limit of descriptors, closes them, and opens one more.
func proxyDescriptors(p *place) (string, error) {
	const limit, port = 200, "127.0.0.1:8000"
	service, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer service.Close()
	go func() {
		for {
			c, err := service.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("hello"))
				_ = c.Close()
			}()
		}
	}()
	far := p.command(p.verbena, "rproxy", "rdma:127.0.0.2:7100", "tcp:"+service.Addr().String())
	far.Env = append(os.Environ(), "VERBENA_DEVICES=b=127.0.0.2")
	near := p.limited(limit, p.verbena, "rproxy", "tcp:"+port, "rdma:127.0.0.2:7100")
	near.Env = append(os.Environ(), "VERBENA_DEVICES=a=127.0.0.1")
	f, err := p.start(far)
	if err == nil {
		err = f.Until("rproxy: ", 10*time.Second)
	}
	if err != nil {
		return "", err
	}
	g, err := p.start(near)
	if err == nil {
		err = g.Until("rproxy: ", 10*time.Second)
	}
	if err != nil {
		return "", err
	}
	var open []net.Conn
	for range 2 * limit {
		c, err := net.DialTimeout("tcp", port, time.Second)
		if err != nil {
			break
		}
		open = append(open, c)
	}
	time.Sleep(time.Second)
	starved := strings.Contains(g.Out.String(), "too many open files")
	for _, c := range open {
		_ = c.Close()
	}
	figures := fmt.Sprintf("%d connections, %d descriptors", len(open), limit)
	if g.Ended() {
		return figures, fmt.Errorf("rproxy ended: %s", proc.FirstLine(g.Out.String()))
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", port, time.Second)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			b := make([]byte, 5)
			_, err = c.Read(b)
			_ = c.Close()
			if err == nil && string(b) == "hello" {
				break
			}
		}
		if time.Now().After(end) {
			return figures, fmt.Errorf("no connection works any more: %w", err)
		}
	}
	if !starved {
		return figures, fmt.Errorf("rproxy did not run out of descriptors")
	}
	return figures + "; it reported that, and recovered", nil
}

// copyOutside makes rcopy write outside the folder of the server.
func copyOutside(p *place) (string, error) {
	folder, home := filepath.Join(p.dir, "srv"), filepath.Join(p.dir, "home")
	for _, d := range []string{folder, home} {
		if err := os.MkdirAll(d, 0o755); err != nil { //nolint:gosec // nothing in it is secret
			return "", err
		}
	}
	if err := os.Symlink(home, filepath.Join(folder, "link")); err != nil {
		return "", err
	}
	key := filepath.Join(p.dir, "key")
	if err := os.WriteFile(key, []byte("key of the attacker\n"), 0o600); err != nil {
		return "", err
	}
	server := p.command(p.verbena, "rcopy")
	server.Dir, server.Env = folder, append(os.Environ(), "VERBENA_DEVICES=a=127.0.0.1")
	g, err := p.start(server)
	if err == nil {
		err = g.Until("waiting", 10*time.Second)
	}
	if err != nil {
		return "", err
	}
	copyTo := func(name string) (int, error) {
		cmd := p.command(p.verbena, "rcopy", key, "127.0.0.1:"+name)
		cmd.Env = append(os.Environ(), "VERBENA_DEVICES=b=127.0.0.2")
		_, status, err := p.finish(20*time.Second, cmd)
		return status, err
	}
	refused := 0
	const file = "authorized_keys"
	for _, name := range []string{filepath.Join(home, file), "../home/" + file, "link/" + file} {
		status, err := copyTo(name)
		if err != nil {
			return "", err
		}
		if status != 0 {
			refused++
		}
	}
	status, err := copyTo("inside")
	list, _ := os.ReadDir(home)
	figures := fmt.Sprintf("%d of 3 refused, %d files outside", refused, len(list))
	switch {
	case err != nil:
		return figures, err
	case refused < 3 || len(list) > 0:
		return figures, fmt.Errorf("a file outside the folder was written")
	case status != 0:
		return figures, fmt.Errorf("a file inside was refused")
	}
	return figures, nil
}

// escape is a name that turns a terminal red and renames its window.
const escape = "\x1b[31mRED\x1b]0;owned\a\u009b2J"

// squat binds the names of sockets of programs. One socket never answers, one answers with escape sequences in each
// name.
func squat() error {
	prefix := "@verbena-control/" + strconv.Itoa(os.Geteuid())
	if _, err := net.Listen("unix", prefix+"/99"+escape); err != nil {
		return err
	}
	l, err := net.Listen("unix", prefix+"/98")
	if err != nil {
		return err
	}
	fmt.Println("squatting")
	q := strings.Trim(strconv.QuoteToASCII(escape), `"`)
	q = strings.NewReplacer(`\x1b`, `\u001b`, `\a`, `\u0007`).Replace(q)
	answer := strings.ReplaceAll(`{"pid":1,"comm":"X","devices":[{"name":"aX","interface":"X",`+
		`"qps":[{"num":5,"type":"X","state":"X","peer":"X","mig":"X","counters":[{"name":"X","value":1}]}],`+
		`"cm_ids":[{"num":1,"qp":5,"type":"X","state":"X","ps":"X"}],"counters":[{"name":"X","value":7}]}]}`, "X", q)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = c.Read(make([]byte, 100))
		_, _ = c.Write([]byte(answer + "\n"))
		_ = c.Close()
	}
}

func terminalNames(p *place) (string, error) {
	g, err := p.start(p.command("", "role", "squat"))
	if err == nil {
		err = g.Until("squatting", 5*time.Second)
	}
	if err != nil {
		return "", err
	}
	n := 0
	for _, line := range []string{
		"rdma resource show", "rdma resource show qp", "rdma -j resource show qp", "rdma resource show cm_id",
		"rdma statistic", "rdma statistic qp show", "rdma resource show qp link none", "top -n 1 -d 0.2", "capture -i none",
	} {
		out, _, err := p.finish(20*time.Second, p.command(p.verbena, strings.Fields(line)...))
		if err != nil {
			return "", err
		}
		if strings.ContainsAny(out, "\x1b\a\u009b") {
			return line, fmt.Errorf("%q was printed", out[:min(len(out), 300)])
		}
		if strings.Contains(out, "RED") {
			n++
		}
	}
	if n == 0 {
		return "", fmt.Errorf("no command showed the names")
	}
	return fmt.Sprintf("%d of 9 commands showed the names, none of them raw", n), nil
}

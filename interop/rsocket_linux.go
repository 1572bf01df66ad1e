package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// rsCases returns the cases of rsockets.
func rsCases() (all []testCase) {
	for _, r := range rsRuns() {
		c := r.testCase()
		c.name = "rsocket/" + strings.TrimPrefix(c.name, "cm/")
		all = append(all, c)
	}
	all = append(all, udpongCases()...)
	return append(all, rcopyCase(), preloadCase())
}

func rsRuns() (runs []cmRun) {
	for _, f := range []int{4, 6} {
		add := func(tool, args string) {
			runs = append(runs, cmRun{
				name: strings.TrimSuffix(tool+"/"+args, "/"), family: f, timeout: 4 * time.Minute,
				server: tool + " -b ADDR " + args, client: tool + " -s ADDR " + args,
				serverSays: `(?m)^(custom|1m_bw) .*\d$`, clientSays: `(?m)^(custom|1m_bw) .*\d$`,
			})
		}
		for _, t := range []string{"", "-T b", "-T n", "-T a", "-T a -T b", "-T r", "-T v", "-T b -T v", "-T a -T v"} {
			add("rstream", strings.TrimSpace("-S 4096 -C 100 "+t))
		}
		for _, size := range []int{1, 65, 1000, 20000, 65537} {
			add("rstream", fmt.Sprintf("-S %d -C 10 -T b -T v", size))
		}
		// The sizes of -S all, which itself would take the emulated guest an hour.
		for size := 64; size <= 4<<20; size *= 2 {
			add("rstream", fmt.Sprintf("-S %d -C 10 -T b -T v", size))
			if f == 4 && size > 64 {
				add("rstream", fmt.Sprintf("-S %d -C 10 -T b -T v", size+size/2))
			}
		}
		add("rstream", "-S 64 -C 1 -I 200 -T b") // in alternating directions
		add("rstream", "-S 100000 -C 20 -B 4096 -T b -T v")
		add("rstream", "-S 1000 -C 5000 -T b -T v") // more messages than credits
		add("rstream", "-k 1 -S 64 -C 10 -T b")
		for _, t := range []string{"", "-T b", "-T b -T v", "-T a"} {
			add("riostream", strings.TrimSpace("-S 4096 -C 50 "+t))
		}
		for _, size := range []int{64, 20000, 1 << 20} {
			add("riostream", fmt.Sprintf("-S %d -C 10 -T b -T v", size))
		}
	}
	return runs
}

// rcopyBytes is the size of the file.
const rcopyBytes = 100 << 20

// rcopyCase copies a file with rcopy; the copy must be equal. The C program supports only IPv4: its server
// listens there, and its client treats the text after a colon as the path.
func rcopyCase() testCase {
	return testCase{name: "rsocket/rcopy of 100 MiB/" + familyName(4), timeout: 5 * time.Minute,
		run: func(env *caseEnv, active, passive *place) error {
			env.ends.stopOurs()
			dir, err := os.MkdirTemp("", "rcopy")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			if !active.ours() {
				from = "/tmp/rcopy.from"
			}
			server := "rcopy --folder " + dir
			if !passive.ours() {
				to, server = "/tmp/rcopy.to", "rcopy"
			}
			defer func() {
				_, _ = env.lab.guest(1, "rm -f /tmp/rcopy.from /tmp/rcopy.to")
			}()
			if _, err := runCmd(active.sh(fmt.Sprintf("head -c %d /dev/urandom > %s", rcopyBytes, from), env.left()),
				env.left()); err != nil {
				return err
			}
			r := cmRun{name: "rcopy", server: server, client: fmt.Sprintf("rcopy %s ADDR:%s", from, to), family: 4,
				clientSays: "104857600 bytes in", persistent: true}
			if err := r.run(env, active, passive); err != nil {
				return err
			}
			return sameFile(env, active, from, passive, to)
		}}
}

// sameFile compares files by their SHA-256.
func sameFile(env *caseEnv, a *place, fileA string, b *place, fileB string) error {
	sums := make([]string, 2)
	for i, f := range []struct {
		p    *place
		file string
	}{{a, fileA}, {b, fileB}} {
		if f.p.ours() {
			data, err := os.ReadFile(f.file)
			if err != nil {
				return err
			}
			sums[i] = fmt.Sprintf("%x", sha256.Sum256(data))
			continue
		}
		out, err := runCmd(f.p.sh("sha256sum "+f.file, env.left()), env.left())
		if err != nil {
			return err
		}
		sums[i], _, _ = strings.Cut(strings.TrimSpace(out), " ")
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("the copy differs: %s and %s", sums[0], sums[1])
	}
	return nil
}

// preloadCase fetches a page from a Go web server over rsockets with a C program that uses plain sockets.
func preloadCase() testCase {
	return testCase{name: "rsocket/preloaded web client", timeout: 2 * time.Minute, oneWay: true,
		run: func(env *caseEnv, active, passive *place) error {
			ours, guest := active, passive
			if !ours.ours() {
				ours, guest = passive, active
			}
			if !ours.ours() {
				return nil // two guests
			}
			env.ends.stopOurs()
			server, err := start("web server", ours.host(filepath.Join(env.lab.bin, "http"), "-serve", ours.ip4+":8080"))
			if err != nil {
				return err
			}
			defer server.Stop()
			if err := ours.cmReady(env.ctx, server); err != nil {
				return err
			}
			out, err := env.lab.guest(guest.id, webClient(ours.ip4+":8080"))
			env.log("client", out)
			if err == nil && !strings.Contains(out, "over RDMA, you asked for /preloaded") {
				err = fmt.Errorf("the page is not there")
			}
			if err != nil {
				return fmt.Errorf("%w\nclient: %s\nserver: %s", err, proc.Tail(out, 8), proc.Tail(server.Out.String(), 8))
			}
			return nil
		}}
}

// webClient returns a shell command that fetches a page with a preloaded program: busybox's nc, which reads
// and writes without stdio.
func webClient(addr string) string {
	host, port, _ := strings.Cut(addr, ":")
	return "(printf 'GET /preloaded HTTP/1.0\\r\\n\\r\\n'; sleep 2) | " +
		"LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so timeout 25 busybox nc " + host + " " + port
}

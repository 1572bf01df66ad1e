//go:build linux

package cabitest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// timeLimit is that of each program. It is long: machines of CI have few processors and other work.
const timeLimit = 120 * time.Second

// packages are the Debian packages of the programs that the tests run.
var packages = map[string][]string{
	"ibverbs-utils": {"ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong",
		"ibv_srq_pingpong", "ibv_xsrq_pingpong"},
	"perftest": {"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw",
		"ib_atomic_lat"},
	"rdmacm-utils": {"rping", "ucmatose", "udaddy", "mckey", "cmtime", "rdma_server", "rdma_client", "rdma_xserver",
		"rdma_xclient", "rstream", "riostream", "rcopy", "udpong"},
	"infiniband-diags": {"ibstat"},
	"binutils":         {"nm"},
	"gcc":              {"gcc"},
	"curl":             {"curl"},
	"iperf3":           {"iperf3"},
	"nginx-light":      {"nginx"},
	"python3":          {"python3"},
	"redis-server":     {"redis-server"},
	"rsync":            {"rsync"},
	"socat":            {"socat"},
	"redis-tools":      {"redis-benchmark", "redis-cli"},
}

// verbena is the path of the command, which TestMain builds.
var verbena string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("VERBENA_LIB") == "" {
		return m.Run() // each test skips itself
	}
	dir, err := os.MkdirTemp("", "cabitest")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Other users run it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Println(err)
		return 1
	}
	verbena = filepath.Join(dir, "verbena")
	build := exec.Command("go", "build", "-o", verbena, "github.com/verbena-rdma/verbena/cmd/verbena")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Printf("%s%v\n", out, err)
		return 1
	}
	if missing := missingPackages(); len(missing) > 0 {
		fmt.Printf("NOT TRIED: the programs of %s: apt-get install %s\n", strings.Join(missing, ", "),
			strings.Join(missing, " "))
	}
	return m.Run()
}

// missingPackages returns the packages of programs that are not installed.
func missingPackages() []string {
	var missing []string
	for p, programs := range packages {
		for _, name := range programs {
			if _, err := exec.LookPath(name); err != nil {
				missing = append(missing, p)
				break
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// needs skips the test if a program or the libraries are missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if verbena == "" {
		t.Skip("VERBENA_LIB is not set: make cabi-test")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// inC returns the command line of a C program.
func inC(args ...string) []string { return append([]string{verbena, "run", "--"}, args...) }

// inGo returns the command line of our program of the same name.
func inGo(args ...string) []string { return append([]string{verbena}, args...) }

// A process is a running program.
type process struct {
	*exec.Cmd
	out    bytes.Buffer
	cancel context.CancelFunc // kills it
	ended  chan struct{}      // closed when it has ended
	err    error              // of its end
}

// wait waits for the end of the program.
func (p *process) wait() error {
	<-p.ended
	return p.err
}

// start runs a program, which is killed when the test ends.
func start(t *testing.T, environ []string, line ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	p := &process{Cmd: exec.CommandContext(ctx, line[0], line[1:]...), cancel: cancel, ended: make(chan struct{})}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.Env = append(os.Environ(), environ...)
	p.WaitDelay = time.Second
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// output runs a program to its end and returns what it printed.
func output(t *testing.T, line ...string) string {
	t.Helper()
	p := start(t, nil, line...)
	if err := p.wait(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(line, " "), err, p.out.String())
	}
	return p.out.String()
}

// listens waits until the process listens on a port, or has ended.
func listens(t *testing.T, p *process, port string) {
	t.Helper()
	for end := time.Now().Add(timeLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// The tables of sockets are read, because a connection to try would be taken for the peer.
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, _ := os.ReadFile(table)
			var n int
			fmt.Sscan(port, &n)
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] == "0A" {
					return
				}
			}
		}
		select {
		case <-p.ended: // its error is its caller's business
			return
		default:
		}
	}
	t.Fatalf("%s does not listen on port %s:\n%s", strings.Join(p.Args, " "), port, p.out.String())
}

// pair runs a server and a client to their ends. Both must succeed. It returns what they have printed.
func pair(t *testing.T, environ []string, port string, server, client []string) (ofServer, ofClient string) {
	t.Helper()
	s := start(t, environ, server...)
	listens(t, s, port)
	c := start(t, environ, client...)
	cerr := c.wait()
	if cerr != nil {
		s.cancel()
	}
	if serr := s.wait(); serr != nil || cerr != nil {
		t.Errorf("client %s: %v\n%s\nserver %s: %v\n%s", strings.Join(client, " "), cerr, c.out.String(),
			strings.Join(server, " "), serr, s.out.String())
	}
	return s.out.String(), c.out.String()
}

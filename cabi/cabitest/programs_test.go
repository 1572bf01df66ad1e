//go:build linux

package cabitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/cabi/abi"
	"github.com/verbena-rdma/verbena/internal/loopback"
)

// installed returns the path of the system's library of that name.
func installed(t *testing.T, name string) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*-linux-gnu/", "/usr/lib64/"} {
		if found, _ := filepath.Glob(pattern + name); len(found) > 0 {
			return found[0]
		}
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// exported returns the names with versions that a library defines, and the version nodes.
func exported(t *testing.T, library string) []string {
	t.Helper()
	out, err := exec.Command("nm", "-D", "--with-symbol-versions", "--defined-only", library).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", library, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		names = append(names, f[len(f)-2]+" "+f[len(f)-1])
	}
	return names
}

func TestLibrariesExportWhatTheInstalledOnesDo(t *testing.T) {
	for _, l := range abi.Libraries() {
		t.Run(l.Soname, func(t *testing.T) {
			needs(t, "nm")
			ours := exported(t, filepath.Join(os.Getenv("VERBENA_LIB"), l.Soname))
			for _, name := range exported(t, installed(t, l.Soname)) {
				if !slices.Contains(ours, name) {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

func TestHeadersAgreeWithTheInstalledOnes(t *testing.T) {
	needs(t, "gcc")
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("libibverbs-dev is not installed")
	}
	check := exec.Command("go", "run", "./cabi/abi/check")
	check.Dir = filepath.Join("..", "..")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDevicesAreThoseOfTheGoTool(t *testing.T) {
	needs(t, "ibv_devices", "ibv_devinfo")
	for _, args := range [][]string{{"ibv_devices"}, {"ibv_devinfo", "-v"}, {"ibv_devinfo", "-l"}} {
		c, g := output(t, inC(args...)...), output(t, inGo(args...)...)
		g = strings.ReplaceAll(g, "ATOMIC_GLOB (2)", "ATOMIC_HCA (1)") // UCX wants that of C libraries
		if c != g {
			t.Errorf("%s in C:\n%s\nin Go:\n%s", args, c, g)
		}
	}
}

func TestIbstatListsTheDevices(t *testing.T) {
	needs(t, "ibstat")
	devices := strings.Fields(output(t, inC("ibstat", "-l")...))
	text := output(t, inC("ibstat")...)
	for _, d := range devices {
		if !strings.Contains(text, "CA '"+d+"'") {
			t.Errorf("%s is missing:\n%s", d, text)
		}
	}
	if !slices.Contains(devices, "vrb_lo") || strings.Count(text, "State: Active") == 0 {
		t.Errorf("devices %v:\n%s", devices, text)
	}
}

// common are the options that all pingpongs have.
var common = [][]string{nil, {"-e"}, {"-n", "200"}, {"-s", "16"}, {"-s", "1000"}, {"-r", "64"}, {"-c"}, {"-l", "3"}}

// pingpongs are the programs with the options that only they have.
var pingpongs = map[string][][]string{
	"ibv_rc_pingpong":   {{"-m", "2048"}, {"-o"}, {"-o", "-P"}, {"-t"}, {"-j"}, {"-N"}, {"-e", "-N"}, {"-s", "65536"}},
	"ibv_uc_pingpong":   {{"-m", "256"}, {"-s", "65536"}},
	"ibv_ud_pingpong":   nil,
	"ibv_srq_pingpong":  {{"-q", "4"}, {"-m", "4096"}, {"-q", "16", "-e"}},
	"ibv_xsrq_pingpong": {{"-m", "4096"}, {"-n", "50"}},
}

// unsupported reports whether a program of Debian 12 lacks an option.
func unsupported(program string, options []string) bool {
	return program == "ibv_xsrq_pingpong" && len(options) > 0 && slices.Contains([]string{"-r", "-l", "-c"}, options[0])
}

func TestPingpongs(t *testing.T) {
	for program, own := range pingpongs {
		t.Run(program, func(t *testing.T) {
			needs(t, program)
			for _, options := range slices.Concat(common, own) {
				if unsupported(program, options) || testing.Short() && len(options) > 0 {
					continue
				}
				name := strings.Join(options, "")
				line := append([]string{program, "-d", "vrb_lo", "-g", "1"}, options...)
				t.Run("C with C "+name, func(t *testing.T) { pingpong(t, inC(line...), inC(line...)) })
			}
			line := []string{program, "-d", "vrb_lo", "-g", "1"}
			t.Run("C with Go", func(t *testing.T) { pingpong(t, inC(line...), inGo(line...)) })
			t.Run("Go with C", func(t *testing.T) { pingpong(t, inGo(line...), inC(line...)) })
			six := []string{program, "-d", "vrb_lo", "-g", "2"}
			t.Run("IPv6", func(t *testing.T) { pingpong(t, inC(six...), inC(six...)) })
		})
	}
}

func pingpong(t *testing.T, server, client []string) {
	t.Helper()
	port := loopback.Port()
	pair(t, nil, port, append(server, "-p", port), append(client, "-p", port, "localhost"))
}

// The server of ibv_xsrq_pingpong sends messages for each client through the QPs of the others: the clients share an
// XRC domain.
func TestX_XRCD_01_ClientsShareADomain(t *testing.T) {
	needs(t, "ibv_xsrq_pingpong")
	const clients = 3
	port := loopback.Port()
	line := []string{"ibv_xsrq_pingpong", "-d", "vrb_lo", "-g", "1", "-p", port, "-n", "200"}
	server := start(t, nil, inC(append(line[:len(line):len(line)], "-c", strconv.Itoa(clients))...)...)
	listens(t, server, port)
	all := []*process{server}
	for i := range clients {
		in := inC
		if i == 0 {
			in = inGo
		}
		all = append(all, start(t, nil, in(append(line[:len(line):len(line)], "localhost")...)...))
	}
	for _, p := range all {
		if err := p.wait(); err != nil || !strings.Contains(p.out.String(), "success") {
			t.Errorf("%s: %v\n%s", strings.Join(p.Args, " "), err, p.out.String())
		}
	}
}

// connected waits until the process has a QP in RTS, or has ended.
func connected(t *testing.T, p *process) {
	t.Helper()
	if !shows(p, "qp", "RTS") {
		t.Fatalf("%s does not connect:\n%s", strings.Join(p.Args, " "), p.out.String())
	}
}

// A program whose peer is killed hears of it: it ends by itself, with an error.
func TestKilledPeerIsNoticed(t *testing.T) {
	needs(t, "ibv_rc_pingpong")
	for _, victim := range []string{"server", "client"} {
		t.Run(victim, func(t *testing.T) {
			port := loopback.Port()
			line := []string{"ibv_rc_pingpong", "-d", "vrb_lo", "-g", "1", "-p", port, "-n", "100000000"}
			server := start(t, nil, inC(line...)...)
			listens(t, server, port)
			client := start(t, nil, inC(append(line, "localhost")...)...)
			connected(t, server)
			connected(t, client)
			killed, survivor := server, client
			if victim == "client" {
				killed, survivor = client, server
			}
			if err := killed.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = killed.wait()
			begin := time.Now()
			err := survivor.wait()
			if took := time.Since(begin); err == nil || took > 20*time.Second {
				t.Errorf("the other end ended after %v with %v:\n%s", took, err, survivor.out.String())
			}
		})
	}
}

//go:build linux

package cabitest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// accepts waits until the process listens with rdma_cm, or has ended.
func accepts(t *testing.T, p *process) {
	t.Helper()
	if !shows(p, "cm_id", "LISTEN") {
		t.Fatalf("%s does not listen:\n%s", strings.Join(p.Args, " "), p.out.String())
	}
}

// shows waits until the process has an object of a kind in a state, or has ended. It reports false if the time is over.
func shows(p *process, kind, state string) bool {
	for end := time.Now().Add(timeLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		list, _ := exec.Command(verbena, "rdma", "resource", "show", kind).Output()
		for line := range strings.Lines(string(list)) {
			if strings.Contains(line, " state "+state+" ") && strings.Contains(line, fmt.Sprintf(" pid %d ", p.Process.Pid)) {
				return true
			}
		}
		select {
		case <-p.ended: // its error is its caller's business
			return true
		default:
		}
	}
	return false
}

// tooEarly reports whether perftest's second connection came before the server listened for it: the programs do not
// wait for each other there. Over RoCE that is so if the server needs more than 1 s, over iWARP if it needs more than
// the 255 ms for which a client tries.
func tooEarly(client *process, tries int) bool {
	out := client.out.String()
	return tries < 2 && (strings.Contains(out, "RDMA_CM_EVENT_REJECTED; error: -111") ||
		strings.Contains(out, "RDMA_CM_EVENT_REJECTED; error: 8"))
}

// meet runs a server and a client of rdma_cm to their ends. Both must succeed, the server unless it serves for good.
func meet(t *testing.T, environ []string, forGood bool, server, client []string) {
	t.Helper()
	for tries := 1; ; tries++ {
		s := start(t, environ, server...)
		accepts(t, s)
		c := start(t, environ, client...)
		cerr := c.wait()
		if cerr != nil || forGood {
			s.cancel()
		}
		serr := s.wait()
		if cerr == nil && (serr == nil || forGood) {
			return
		}
		if !tooEarly(c, tries) {
			t.Fatalf("client %s: %v\n%s\nserver %s: %v\n%s", strings.Join(client, " "), cerr, c.out.String(),
				strings.Join(server, " "), serr, s.out.String())
		}
	}
}

// cmProgram is a pair of programs with options of both sides, of the client, and of the server.
type cmProgram struct {
	server, client           string
	options, clients, serves []string
	forGood                  bool // the server serves for good
}

// at is the option of a client that names the server.
var at = []string{"-s", "127.0.0.1"}

// cmPrograms are the programs of rdmacm-utils.
var cmPrograms = []cmProgram{
	{server: "rping", client: "rping", options: []string{"-a", "127.0.0.1", "-C", "100", "-S", "65535", "-V"},
		serves: []string{"-s"}, clients: []string{"-c"}},
	{server: "rping", client: "rping", options: []string{"-a", "::1", "-C", "10"},
		serves: []string{"-s"}, clients: []string{"-c"}},
	{server: "ucmatose", client: "ucmatose", options: []string{"-c", "50"}, clients: at},
	{server: "ucmatose", client: "ucmatose", options: []string{"-c", "5", "-m"}, clients: at},
	{server: "udaddy", client: "udaddy", options: []string{"-c", "10"}, clients: at},
	{server: "rdma_server", client: "rdma_client", clients: at},
	{server: "rdma_xserver", client: "rdma_xclient", clients: at},
	{server: "rdma_xserver", client: "rdma_xclient", options: []string{"-c", "x"}, clients: at},
	{server: "cmtime", client: "cmtime", options: []string{"-c", "100"}, clients: at, serves: []string{"-b", "127.0.0.1"},
		forGood: true},
	{server: "rstream", client: "rstream", options: []string{"-S", "65536", "-I", "20", "-C", "10"}, clients: at},
	{server: "rstream", client: "rstream", options: []string{"-S", "4096", "-I", "20", "-C", "10", "-T", "a"},
		clients: at},
	{server: "rstream", client: "rstream", options: []string{"-S", "4096", "-I", "20", "-C", "10", "-T", "b"},
		clients: at},
	{server: "rstream", client: "rstream", options: []string{"-S", "4096", "-I", "20", "-C", "10", "-T", "r"},
		clients: at},
	{server: "riostream", client: "riostream", options: []string{"-S", "65536", "-I", "20", "-C", "10"}, clients: at},
}

// on returns the options with a port. udaddy has no option for that.
func (p *cmProgram) on(port string) []string {
	if p.server == "udaddy" {
		return p.options
	}
	return append([]string{"-p", port}, p.options...)
}

func TestRdmacmPrograms(t *testing.T) {
	for i, p := range cmPrograms {
		if testing.Short() && i > 0 && p.server == cmPrograms[i-1].server {
			continue
		}
		t.Run(p.client+" "+strings.Join(p.options, " "), func(t *testing.T) {
			needs(t, p.server, p.client)
			ways := []struct {
				name           string
				server, client func(...string) []string
			}{{"C with C", inC, inC}, {"C with Go", inC, inGo}, {"Go with C", inGo, inC}}
			for _, w := range ways {
				t.Run(w.name, func(t *testing.T) {
					options := p.on(loopback.Port())
					meet(t, nil, p.forGood, w.server(append(append([]string{p.server}, options...), p.serves...)...),
						w.client(append(append([]string{p.client}, options...), p.clients...)...))
				})
				if testing.Short() {
					break
				}
			}
		})
	}
}

func TestRdmacmProgramsWithLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("make cabi-test runs it")
	}
	loss := []string{"VERBENA_SHM=0", "VERBENA_FAULT=loss=0.02"}
	for _, p := range cmPrograms {
		switch p.server {
		case "rping", "ucmatose", "rdma_server", "rstream":
		default:
			continue
		}
		t.Run(p.client+" "+strings.Join(p.options, " "), func(t *testing.T) {
			needs(t, p.server, p.client)
			options := p.on(loopback.Port())
			meet(t, loss, p.forGood, inC(append(append([]string{p.server}, options...), p.serves...)...),
				inC(append(append([]string{p.client}, options...), p.clients...)...))
		})
	}
}

// The receiver of a group ends when it has received; a sender that comes too early is repeated.
func TestMckey(t *testing.T) {
	needs(t, "mckey")
	line := []string{"mckey", "-m", "239.1.1.1", "-C", "5", "-b", "127.0.0.1"}
	receiver := start(t, nil, inC(line...)...)
	for {
		if err := start(t, nil, inC(append(line, "-s")...)...).wait(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-receiver.ended:
			if receiver.err != nil {
				t.Errorf("%v\n%s", receiver.err, receiver.out.String())
			}
			return
		default:
		}
	}
}

// udpong repeats its messages, so that no order is needed.
func TestUdpong(t *testing.T) {
	needs(t, "udpong")
	for _, kind := range []string{"n", "b", "a", "e"} {
		t.Run(kind, func(t *testing.T) {
			line := []string{"udpong", "-p", loopback.Port(), "-C", "100", "-S", "1000", "-T", kind}
			start(t, nil, inC(append(line, "-b", "127.0.0.1")...)...)
			if c := start(t, nil, inC(append(line, "-s", "127.0.0.1")...)...); c.wait() != nil {
				t.Errorf("%v\n%s", c.err, c.out.String())
			}
		})
	}
}

// TestPerftestByRdmacm runs the tools with -R, which connects by rdma_cm.
func TestPerftestByRdmacm(t *testing.T) {
	for tool := range perftests {
		if testing.Short() && tool != "ib_write_bw" {
			continue
		}
		t.Run(tool, func(t *testing.T) {
			needs(t, tool)
			perftestByRdmacm(t, tool)
		})
	}
	for _, tool := range []string{"ib_send_bw", "ib_send_lat"} {
		t.Run(tool+" -c UD", func(t *testing.T) {
			needs(t, tool)
			perftestByRdmacm(t, tool, "-c", "UD")
		})
	}
}

func perftestByRdmacm(t *testing.T, tool string, options ...string) {
	t.Helper()
	for tries := 1; ; tries++ {
		line := append(inC(tool, "-d", "vrb_lo", "-F", "-p", loopback.Port(), "-R", "-n", "208"), options...)
		s := start(t, nil, line...)
		accepts(t, s)
		c := start(t, nil, append(line[:len(line):len(line)], "127.0.0.1")...)
		err := c.wait()
		if err != nil {
			s.cancel()
		}
		if serr := s.wait(); err == nil && serr == nil {
			return
		} else if !tooEarly(c, tries) {
			t.Fatalf("client: %v\n%s\nserver: %v\n%s", err, c.out.String(), serr, s.out.String())
		}
	}
}

// A client hears of a server that is killed, whatever it does at the time, and ends. Its exit status is 0 if it was
// told by the event DISCONNECTED.
func TestKilledRpingServerIsNoticed(t *testing.T) {
	phases := 10
	if testing.Short() {
		phases = 1
	}
	needs(t, "rping")
	for phase := range phases {
		t.Run(strconv.Itoa(phase), func(t *testing.T) {
			line := []string{"rping", "-a", "127.0.0.1", "-p", loopback.Port(), "-C", "100000000"}
			server := start(t, nil, inC(append(line, "-s")...)...)
			accepts(t, server)
			client := start(t, nil, inC(append(line, "-c")...)...)
			time.Sleep(time.Duration(phase) * 150 * time.Millisecond)
			if err := server.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = server.wait()
			begin := time.Now()
			if err := client.wait(); time.Since(begin) > 30*time.Second {
				t.Errorf("the client ended after %v with %v:\n%s", time.Since(begin), err, client.out.String())
			}
		})
	}
}

func TestRcopy(t *testing.T) {
	needs(t, "rcopy", "dd", "cmp")
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	output(t, "dd", "if=/dev/urandom", "of="+from, "bs=1M", "count=16", "status=none")
	port := loopback.Port()
	meet(t, nil, true, inC("rcopy", "-p", port), inC("rcopy", from, "127.0.0.1:"+to, "-p", port))
	output(t, "cmp", from, to)
}

// The programs run over TCP if the environment asks for iWARP devices. perftest's make their QPs with librdmacm too.
func TestProgramsOverIWARP(t *testing.T) {
	tcp := []string{"VERBENA_TRANSPORT=iwarp"}
	var list []cmProgram
	for _, p := range cmPrograms {
		if p.server != "udaddy" && strings.Join(p.options, " ") != "-c x" { // UD, XRC
			list = append(list, p)
		}
	}
	for _, name := range []string{"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw",
		"ib_read_lat"} {
		list = append(list, cmProgram{server: name, client: name, options: []string{"-R", "-n", "100"},
			clients: []string{"127.0.0.1"}})
	}
	for i, p := range list {
		if testing.Short() && i > 0 && p.server == list[i-1].server {
			continue
		}
		t.Run(p.client+" "+strings.Join(p.options, " "), func(t *testing.T) {
			needs(t, p.server, p.client)
			options := p.on(loopback.Port())
			meet(t, tcp, p.forGood, inC(append(append([]string{p.server}, options...), p.serves...)...),
				inC(append(append([]string{p.client}, options...), p.clients...)...))
		})
	}
}

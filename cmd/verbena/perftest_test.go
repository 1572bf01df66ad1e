package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

var perftestLine = regexp.MustCompile(`(?m)^ (\d+) +(\d+) +([\d.]+) .*$`)

// Each program against itself; interop runs it against the C programs.
func TestPerftest(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
	}{
		{"ib_send_bw", []string{"", "-R", "-q 3 -b", "-e", "-c UC -s 512 -t 16", "-c UD -s 512 -t 16",
			"-R -c UD -s 512 -b -t 16", "-l 5", "-a -n 5", "-I 64 -s 64 -r 2",
			"-c XRC", "-c XRC -q 3 -b", "-c XRC -e -b", "-c XRC -z -a -n 5"}},
		{"ib_send_lat", []string{"", "-R", "-e", "-c UC", "-c UD -s 1024", "-R -c UD", "-a -n 5", "-c XRC", "-c XRC -e"}},
		{"ib_write_bw", []string{"", "-R -q 2", "-b", "-a -b -n 5", "-c UC -s 256", "-e -m 1024",
			"-c XRC -q 2", "-c XRC -q 2 -b"}},
		{"ib_write_lat", []string{"", "-R", "-c UC", "-a -n 5", "-I 8", "-c XRC"}},
		{"ib_read_bw", []string{"", "-R", "-o 1 -b", "-e", "-c XRC -b"}},
		{"ib_read_lat", []string{"", "-R -e", "-a -n 5", "-c XRC"}},
		{"ib_atomic_bw", []string{"", "-A CMP_AND_SWAP -R", "-b", "-c XRC -q 2 -b"}},
		{"ib_atomic_lat", []string{"", "-R", "-c XRC"}},
	} {
		for way, options := range c.options {
			t.Run(strings.ReplaceAll(c.name+" "+options, " ", "_"), func(t *testing.T) {
				if !strings.Contains(options, "-n") {
					options += " -n 50"
				}
				server, client := play(t, way, c.name, options)
				want := 1
				if strings.Contains(options, "-a") {
					want = 23
				}
				for side, out := range map[string]string{"server": server, "client": client} {
					n := want
					if side == "server" && strings.HasSuffix(c.name, "_lat") && !strings.Contains(c.name, "send") &&
						!strings.Contains(c.name, "write") {
						n = 0 // only the client measures
					}
					lines := perftestLine.FindAllStringSubmatch(out, -1)
					if len(lines) != n {
						t.Fatalf("the %s has %d results, want %d:\n%s", side, len(lines), n, out)
					}
					if strings.Contains(out, "---\n---") {
						t.Errorf("the %s prints two lines in a row, unlike the C program:\n%s", side, out)
					}
					for i, l := range lines {
						if size, _ := strconv.Atoi(l[1]); want > 1 && size != 2<<i {
							t.Errorf("the %s has result %d for %d bytes", side, i, size)
						}
					}
				}
			})
		}
	}
}

// The servers of WRITE and READ print the client's result.
func TestPerftestReportsAgree(t *testing.T) {
	server, client := play(t, 0, "ib_write_bw", "-n 100 --report_gbits")
	if s, c := perftestLine.FindString(server), perftestLine.FindString(client); s == "" || s != c {
		t.Errorf("server %q, client %q", s, c)
	}
}

// In a bidirectional run with a duration, each end of SEND counts what it sends and what it receives, as
// the C program does. So both count the same messages, even if one end sends many more than the other.
func TestPerftestEndsCountTheSameMessages(t *testing.T) {
	port := loopback.Port()
	args := func(depth string, more ...string) []string {
		return append([]string{"-b", "-D", "2", "-f", "0", "-s", "4096", "-p", port, "-t", depth}, more...)
	}
	s, serverOut, serverErr := start(t, serverAddr, "ib_send_bw", args("1")...)
	clientOut, clientErr, err := runClient(t, clientAddr, "ib_send_bw", args("64", serverAddr)...)
	if err != nil {
		_ = s.Process.Kill()
	}
	if err = errors.Join(err, s.Wait()); err != nil {
		t.Fatalf("%v\n%s%s\n%s%s", err, clientOut, clientErr, serverOut, serverErr)
	}
	counted := func(out string) (n float64) {
		if m := perftestLine.FindStringSubmatch(out); m != nil {
			n, _ = strconv.ParseFloat(m[2], 64)
		}
		return n
	}
	sn, cn := counted(serverOut.String()), counted(clientOut.String())
	t.Logf("the server counts %v messages, the client %v", sn, cn)
	if sn == 0 || cn > 2*sn || sn > 2*cn {
		t.Errorf("the server counts %v messages, the client %v", sn, cn)
	}
}

// --json and --plot write the results into files.
func TestPerftestFiles(t *testing.T) {
	dir := t.TempDir()
	play(t, 0, "ib_read_bw", "-a -n 5 --json "+filepath.Join(dir, "SIDE.json")+" --plot "+filepath.Join(dir, "SIDE.svg"))
	out, svg := filepath.Join(dir, "client.json"), filepath.Join(dir, "client.svg")
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Test    string
		Results []struct {
			Size    int
			Average float64 `json:"bw_average"`
		}
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	if report.Test != "ib_read_bw" || len(report.Results) != 23 || report.Results[22].Size != 1<<23 ||
		report.Results[22].Average <= 0 {
		t.Errorf("JSON: %s", b)
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.Contains(string(b), "<svg") ||
		!strings.Contains(string(b), "message size") {
		t.Errorf("SVG: %v %.80s", err, b)
	}
}

// With one size --plot draws bars.
func TestPerftestPlotOfOneSize(t *testing.T) {
	file := filepath.Join(t.TempDir(), "SIDE.svg")
	play(t, 0, "ib_write_bw", "-n 50 --plot "+file)
	b, err := os.ReadFile(strings.ReplaceAll(file, "SIDE", "client"))
	for _, want := range []string{"messages of 65536 bytes", ">average<", ">peak<"} {
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%v, no %q in %.300s", err, want, b)
		}
	}
}

// A client with -R finds no server that was started without, as one without -R finds none with. Both say so.
func TestPerftestManagedAtOneEnd(t *testing.T) {
	for _, args := range []string{"-R", ""} {
		_, errs, status := output(t, "verbena", strings.Fields("ib_write_bw -p 9 "+ownAddr+" "+args)...)
		if status != 1 || !strings.Contains(errs, "at both ends or at neither") {
			t.Errorf("%s: status %d: %s", args, status, errs)
		}
	}
}

// Errors for invalid options name the valid ones.
func TestPerftestMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"ib_send_bw -c DC":             "must be RC, XRC, UC or UD",
		"ib_write_bw -c UD":            "UD supports only SEND",
		"ib_read_bw -c UC":             "UC supports only SEND and WRITE",
		"ib_send_bw -R -c UC":          "rdma_cm does not connect UC",
		"ib_send_bw -m 1000":           "256, 512, 1024, 2048 or 4096",
		"ib_send_bw -n 1":              "5 to",
		"ib_send_bw -n 7 -l 2":         "multiple of -l 2",
		"ib_send_bw -s 10G":            "message size",
		"ib_write_lat -e":              "cannot use -e",
		"ib_send_bw -D 4 -f 2":         "leave no time",
		"ib_send_bw --plot x.gif":      ".svg or .png",
		"ib_send_bw --nonsense":        "unknown option --nonsense",
		"ib_atomic_bw -A SWAP":         "CMP_AND_SWAP or FETCH_AND_ADD",
		"ib_send_bw -p 1 -n 5 a b":     "more than one host",
		"ib_read_bw -o 256":            "0 to 255",
		"ib_send_lat -q 2":             "one QP",
		"ib_send_bw -T 1":              "-T needs -R",
		"ib_send_bw -n 5 no.such.host": "couldn't connect",
		"ib_send_bw -d vrb_none":       `no device is named "vrb_none"; there are`,
		"ib_send_bw -i 3":              "port 3: must be 1 to 1",
		"ib_send_bw -x 99":             "entry 99 of port 1 is empty; verbena show_gids",
		"ib_send_bw --plot /no/a.svg":  "open /no/a.svg: no such file or directory",
		"ib_send_bw --json /":          "is a directory",
		"ibv_rc_pingpong -i 3":         "port 3: must be 1 to 1",
		"ibv_xsrq_pingpong -g 99":      "entry 99 of port 1 is empty",
		"ibv_ud_pingpong -d vrb_none":  `no device is named "vrb_none"; there are`,
	} {
		words := strings.Fields(args)
		c, stdout, stderr := start(t, clientAddr, words[0], words[1:]...)
		if err := c.Wait(); err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %v, %q lacks %q\n%s", args, err, stderr, want, stdout)
		}
	}
}

// Options about reports, limits and the way of connecting, at both ends.
func TestPerftestMoreOptions(t *testing.T) {
	const number = `^[\d.]+\n$`
	for _, c := range []struct {
		name, options  string
		server, client string // regular expressions of the outputs
	}{
		{"ib_send_bw", "-n 50 -z", "Data ex. method : rdma_cm", "rdma_cm QPs\t : OFF"},
		{"ib_write_lat", "-n 50 -z", "Data ex. method : rdma_cm", "rdma_cm QPs\t : OFF"},
		{"ib_send_bw", "-n 50 -b --report-both", `(?s)Local results: .*Remote results: `,
			`(?s)Local results: .*Remote results: `},
		{"ib_send_bw", "-n 50 --use-srq -q 3 -r 30", "Using SRQ      : ON", `(?m)^ 65536 +150 `},
		{"ib_send_lat", "-n 50 --use-srq", "Using SRQ      : ON", `(?m)^ 2 +50 `},
		{"ib_send_bw", "-n 50 --use-srq -c UD -q 2", `(?m)^ \d+ +100 `, "Using SRQ      : ON"},
		{"ib_send_bw", "-n 50 -c UD", `(?m)^ 4096 +50 `, "Max msg size in UD is MTU 4096\n Changing to this MTU"},
		{"ib_write_bw", "-n 50 --tclass=32", `(?m)^ 65536 +50 `, `(?m)^ 65536 +50 `},
		{"ib_write_bw", "-n 50 --output=bandwidth", number, number},
		{"ib_write_bw", "-n 50 --output=message_rate", number, number},
		{"ib_write_lat", "-n 50 --output=latency", number, number},
		{"ib_send_bw", "-D 1 -f 0 --cpu_util", `CPU_Util\[%\]\n .*\d\.\d\d\n`, `CPU_Util\[%\]\n .*\d\.\d\d\n`},
		{"ib_write_lat", "-D 1 -f 0 --cpu_util", `CPU_Util\[%\]\n .*\d\.\d\d\n`, `CPU_Util\[%\]\n .*\d\.\d\d\n`},
		{"ib_write_bw", "-n 50 -w 0.001 -y 0.000001", `(?m)^ 65536 +50 `, `(?m)^ 65536 +50 `},
	} {
		t.Run(strings.ReplaceAll(c.name+" "+c.options, " ", "_"), func(t *testing.T) {
			if strings.Contains(c.options, "cpu_util") && runtime.GOOS != "linux" {
				t.Skip("--cpu_util needs /proc/stat")
			}
			server, client := play(t, 0, c.name, c.options)
			for side, out := range map[string][2]string{"server": {server, c.server}, "client": {client, c.client}} {
				if !regexp.MustCompile(out[1]).MatchString(strings.TrimPrefix(out[0], waiting)) {
					t.Errorf("the %s does not print %q:\n%s", side, out[1], out[0])
				}
			}
		})
	}
}

const waiting = "\n************************************\n" +
	"* Waiting for client to connect... *\n" +
	"************************************\n"

// A run whose result is below the limit of -w fails, after its results.
func TestPerftestLimit(t *testing.T) {
	server, client, err := meet(t, 0, "ib_write_bw", "-n 50 -w 1e9")
	const want = "is below the limit of -w, 1000000000.00"
	if err == nil || !strings.Contains(client, want) || !perftestLine.MatchString(client) {
		t.Errorf("%v:\n%s", err, client)
	}
	if !perftestLine.MatchString(server) {
		t.Errorf("the server:\n%s", server)
	}
}

// --out_json writes a report with the names of the C program.
func TestPerftestOutJSON(t *testing.T) {
	dir := t.TempDir()
	play(t, 0, "ib_write_lat", "-n 50 --out_json --out_json_file "+filepath.Join(dir, "SIDE.json"))
	b, err := os.ReadFile(filepath.Join(dir, "client.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Info    map[string]any     `json:"test_info"`
		Results map[string]float64 `json:"results"`
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if report.Info["test"] != "RDMA_Write_Latency_Test" || report.Info["Connection_type"] != "RC" ||
		report.Results["n_iterations"] != 50 || report.Results["t_avg"] <= 0 || report.Results["percentile_99.9"] <= 0 {
		t.Errorf("%s", b)
	}
}

// --run_infinitely prints a result every -D seconds, until Ctrl-C at the client, which ends the server too.
func TestPerftestRunsInfinitely(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Ctrl-C cannot be sent to one process")
	}
	for _, name := range []string{"ib_write_bw", "ib_send_bw"} {
		args := []string{"--run_infinitely", "-D", "1", "-p", loopback.Port()}
		s, serverOut, serverErr := start(t, serverAddr, name, args...)
		var c *exec.Cmd
		var clientOut *interrupter
		var err error
		clientErr, begin := new(bytes.Buffer), time.Now()
		for ; ; time.Sleep(100 * time.Millisecond) { // until the server listens
			clientErr.Reset()
			c = command(t, clientAddr, name, append(args, serverAddr)...)
			clientOut = &interrupter{cmd: c}
			c.Stdout, c.Stderr = clientOut, clientErr
			err = c.Run()
			if err == nil || time.Since(begin) > 20*time.Second || !strings.Contains(clientErr.String(), "couldn't connect") {
				break
			}
		}
		if err != nil {
			_ = s.Process.Kill()
		}
		if err = errors.Join(err, s.Wait()); err != nil {
			t.Errorf("%s: %v\n%s%s\n%s%s", name, err, &clientOut.out, clientErr, serverOut, serverErr)
		}
		if took := time.Since(begin); took < 2*time.Second {
			t.Errorf("%s: two results after %v", name, took)
		}
	}
}

// interrupter is the output of a command, which it interrupts at the second result.
type interrupter struct {
	out  bytes.Buffer
	cmd  *exec.Cmd
	sent bool
}

func (i *interrupter) Write(b []byte) (int, error) {
	n, err := i.out.Write(b)
	if !i.sent && len(perftestLine.FindAll(i.out.Bytes(), 2)) == 2 {
		i.sent = true
		_ = i.cmd.Process.Signal(os.Interrupt)
	}
	return n, err
}

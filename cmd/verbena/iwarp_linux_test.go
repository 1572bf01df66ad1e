package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tools run over TCP if the environment asks for iWARP devices.
func TestToolsOverIWARP(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	if out, _, _ := output(t, "ibv_devices"); !strings.Contains(out, "vrw_test") {
		t.Errorf("ibv_devices:\n%s", out)
	}
	for _, c := range []struct{ tool, server, client string }{
		{"rping", "-s -C 10 -a " + serverAddr, "-c -C 10 -v -a " + serverAddr},
		{"ucmatose", "-c 5 -b " + serverAddr, "-c 5 -s " + serverAddr}, // the server sends first
		{"rdma_server", "", "-s " + serverAddr},
		{"rdma_xserver", "", "-s " + serverAddr},
		{"rstream", "-S all -C 20 -T v -b " + serverAddr, "-S all -C 20 -T v -s " + serverAddr},
		{"riostream", "-S all -C 20 -b " + serverAddr, "-S all -C 20 -s " + serverAddr},
		{"ib_send_bw", "-R -a -n 100", "-R -a -n 100 " + serverAddr},
		{"ib_send_bw", "-R -n 5000 -r 8", "-R -n 5000 -r 8 " + serverAddr}, // the receiver gives credits
		{"ib_send_bw", "-R -b -e -q 2 -n 2000 -r 7", "-R -b -e -q 2 -n 2000 -r 7 " + serverAddr},
		{"ib_send_bw", "-R -D 1 -f 0 -r 2", "-R -D 1 -f 0 -r 2 " + serverAddr},
		{"ib_send_lat", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_write_bw", "-R -n 100 -q 4", "-R -n 100 -q 4 " + serverAddr},
		{"ib_write_lat", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_read_bw", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_read_lat", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_atomic_bw", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_atomic_lat", "-R -n 100", "-R -n 100 " + serverAddr},
	} {
		t.Run(c.tool, func(t *testing.T) {
			serverTool, clientTool := c.tool, strings.Replace(c.tool, "server", "client", 1)
			pairOf(t, serverTool, c.server, clientTool, c.client)
		})
	}
}

// Tools that connect their QPs themselves refuse iWARP devices at once, in one line with the way out.
func TestToolsThatNeedRDMACM(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	tools := map[string]string{}
	for _, verb := range []string{"send", "write", "read", "atomic"} {
		tools["ib_"+verb+"_bw"], tools["ib_"+verb+"_lat"] = "use -R at both ends", "use -R at both ends"
	}
	for _, kind := range []string{"rc", "uc", "ud", "srq", "xsrq"} {
		tools["ibv_"+kind+"_pingpong"] = "choose another device with -d, or use rping"
	}
	for name, want := range tools {
		for _, args := range []string{"-d vrw_test", "-d vrw_test " + serverAddr, "-d vrw_test -g 1"} {
			if strings.HasPrefix(name, "ib_") {
				args = strings.Replace(args, "-g", "-x", 1)
			}
			out, errOut, status := output(t, name, strings.Fields(args)...)
			if status == 0 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.HasSuffix(errOut, want+"\n") {
				t.Errorf("%s %s: status %d, %q %q", name, args, status, out, errOut)
			}
		}
	}
	t.Setenv("VERBENA_PROVIDER", "iwarp") // there is no other device
	for _, name := range []string{"ib_send_bw", "ibv_rc_pingpong"} {
		if _, errOut, status := output(t, name); status == 0 || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %q", name, status, errOut)
		}
	}
}

// Captures have the streams, from TCP's handshake on: explain reads them, and so does tshark where it is installed.
func TestCapturesOfIWARP(t *testing.T) {
	dir := t.TempDir()
	live := filepath.Join(dir, "live.pcapng")
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	t.Setenv("VERBENA_IWARP_CRC", "1")
	follows, followErr := startCapture(t, "-i", "vrw_test", "-c", "160", "-w", live)
	t.Setenv("VERBENA_PCAP", filepath.Join(dir, "own%p.pcapng"))
	pairOf(t, "rping", "-s -C 20 -S 65535 -a "+serverAddr, "rping", "-c -C 20 -S 65535 -v -a "+serverAddr)
	errText, _ := io.ReadAll(followErr)
	if err := follows.Wait(); err != nil {
		t.Fatalf("verbena capture: %v\n%s", err, errText)
	}
	files, err := filepath.Glob(filepath.Join(dir, "own*.pcapng"))
	if err != nil || len(files) < 2 {
		t.Fatalf("captures %q, %v", files, err)
	}
	for _, file := range append(files, live) {
		want := []string{"MPA request, revision 2, CRCs", "MPA reply, revision 2, CRCs", "READ of 65535 bytes at",
			"answer to the READ, 65535 bytes in 2 segments"}
		if file != live {
			want = append(want, "SEND, message 39, 16 bytes")
		}
		out, errOut, status := output(t, "verbena", "explain", file)
		if status != 0 || strings.Contains(out, "!") || strings.Contains(out, "missing") {
			t.Errorf("%d %s\n%s", status, errOut, out)
		}
		if !strings.Contains(out, "FPDUs of iWARP") {
			continue // a client that came too early
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", file, w, out)
			}
		}
		if file != live {
			dissect(t, file)
		}
	}
	for _, file := range byInterface(t, live) {
		dissect(t, file)
	}
}

// byInterface writes the packets of each of the two programs of a live capture to a file of its own: a segment that one
// has sent is the other's too, in pieces that may differ, and tshark would take them for another transmission.
func byInterface(t *testing.T, live string) (files []string) {
	if _, err := exec.LookPath("tshark"); err != nil {
		return nil
	}
	for i := range 2 {
		file := fmt.Sprintf("%s.%d", live, i)
		out, err := exec.Command("tshark", "-n", "-r", live, "-Y", fmt.Sprintf("frame.interface_id == %d", i), "-w",
			file).CombinedOutput()
		if err != nil {
			t.Fatalf("tshark: %v\n%s", err, out)
		}
		files = append(files, file)
	}
	return files
}

// startCapture starts "verbena capture" and waits for its message that it has all packets from now on. errs is the rest
// of its standard error output.
func startCapture(t *testing.T, args ...string) (cmd *exec.Cmd, errs io.Reader) {
	t.Helper()
	cmd = command(t, serverAddr, "verbena", append([]string{"capture"}, args...)...)
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(pipe)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "capturing on ") {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("verbena capture prints %q, %v", line, err)
	}
	return cmd, r
}

// dissect has tshark look for malformed frames and wrong checksums.
func dissect(t *testing.T, file string) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Log("tshark is not installed: the capture is not dissected")
		return
	}
	// The client's port is random, and may be that of another protocol. With this option tshark tries iWARP first.
	const first = "tcp.try_heuristic_first:TRUE"
	const bad = "_ws.malformed || iwarp_mpa.bad_length || tcp.checksum.status == 0 || ip.checksum.status == 0"
	out, err := exec.Command("tshark", "-n", "-r", file, "-o", first, "-o", "tcp.check_checksum:TRUE", "-o",
		"ip.check_checksum:TRUE", "-Y", "iwarp_rdma || "+bad).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	rdma := strings.Count(string(out), "DDP/RDMA")
	if all := strings.Count(string(out), "\n"); rdma != all || rdma < 8 {
		t.Errorf("%s: %d messages of RDMAP, %d other frames:\n%s", file, rdma, all-rdma, out)
	}
}

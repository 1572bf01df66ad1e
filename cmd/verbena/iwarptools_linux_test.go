package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// The tools that ask programs show the QPs, counters and rates of iWARP devices.
func TestToolsShowIWARP(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	port := loopback.Port()
	// until runs a tool until its output, of which the last one is returned, matches.
	until := func(want, tool string, args ...any) []string {
		t.Helper()
		end := time.Now().Add(time.Minute)
		re := regexp.MustCompile(want)
		for {
			out, errs, _ := output(t, "verbena", strings.Fields(fmt.Sprintf(tool, args...))...)
			if m := re.FindStringSubmatch(out); m != nil {
				return m
			}
			if time.Now().After(end) {
				t.Fatalf("verbena "+tool+":\n%s%s\nno %s", append(args, out, errs, want)...)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	server, _, _ := start(t, serverAddr, "rping", "-s", "-P", "-a", serverAddr, "-p", port, "-S", "5000")
	until("state LISTEN", "rdma resource show cm_id pid %d", server.Process.Pid)
	client, _, _ := start(t, clientAddr, "rping", "-c", "-a", serverAddr, "-p", port, "-S", "5000")
	pid := client.Process.Pid

	qp := until(`link vrw_test/1 lqpn (\d+) rqpn 0 type RC state RTS rq-psn 0 sq-psn 0 path-mig-state MIGRATED `+
		`pdn \d+ pid \d+ comm rping src-addr (\S+:\d+) dst-addr `+serverAddr+`:`+port+` \n`,
		"rdma resource show qp pid %d", pid)
	until(`type RC state RTS .* src-addr `+serverAddr+`:`+port+` dst-addr `+qp[2]+` \n`,
		"rdma resource show qp pid %d", server.Process.Pid)
	until(`users 2 .*pid \d+ comm rping `, "rdma resource show cq pid %d", pid)
	until(` rx_write_requests [1-9]\d* rx_read_requests [1-9].* tx_terminates 0 .* retransmit_packets \d+ sent_pkts [1-9]`,
		"rdma statistic qp show lqpn %s pid %d", qp[1], pid)
	until(`link vrw_test/1 .* tx_data_bytes [1-9]\d* rx_data_bytes [1-9]`, "rdma statistic show link vrw_test/1")
	until(fmt.Sprintf(`(?m)^ *%d rping +vrw_test +0x\S+ RC +RTS +%s:%s +0*[.1-9]\S* +0*[.1-9]`, pid, serverAddr, port),
		"top -d 0.5 -n 1")
	until(fmt.Sprintf(`verbena_tx_data_bytes_total{comm="rping",device="vrw_test",pid="%d",port="1"} [1-9]`, pid),
		"exporter --once")
	until(fmt.Sprintf(`verbena_qp_rx_bytes_total{comm="rping",device="vrw_test",peer="%s:%s",pid="%d",port="1",`,
		serverAddr, port, pid), "exporter --once --qps")
	until(`vrw_test: node_type rnic `, "rdma dev show")
}

package main

import (
	"strings"
	"testing"
	"time"
)

// Hosts with MTUs of 9000 and 1500 bytes connect, whichever is the client, with IPv4 and IPv6.
func TestHostsWithUnequalMTUs(t *testing.T) {
	onHosts(t, 9000, 1500, func(h *hosts) {
		for _, c := range []struct{ server, client, addr string }{
			{"b", "a", "10.9.0.2"}, {"b", "a", "fd09::2"}, {"a", "b", "10.9.0.1"},
		} {
			wait := h.serve(c.server, "rping", "-s", "-a", c.addr, "-C", "2", "-S", "60000")
			if out, status := h.run(c.client, "rping", "-c", "-a", c.addr, "-C", "2", "-S", "60000"); status != 0 {
				t.Errorf("rping to %s: status %d: %s", c.addr, status, out)
			}
			wait()
			wait = h.serve(c.server, "rstream", "-b", c.addr, "-S", "65536", "-C", "20")
			if out, status := h.run(c.client, "rstream", "-s", c.addr, "-S", "65536", "-C", "20"); status != 0 {
				t.Errorf("rstream to %s: status %d: %s", c.addr, status, out)
			}
			wait()
		}
	})
}

// A connection whose packets cannot arrive ends early and says why.
func TestConnectThatCannotArrive(t *testing.T) {
	onHosts(t, 1500, 1500, func(h *hosts) {
		const (
			drop   = "ip netns exec %s nft 'add table inet f; add chain inet f c { type filter hook %s priority 0; }; "
			rule   = "add rule inet f c udp dport 4791 %s'"
			forget = "ip netns exec %s nft flush ruleset"
		)
		for _, c := range []struct {
			name, addr, host, hook, verdict string
			want                            []string
		}{
			{"a firewall here", "10.9.0.2", "a", "output", "drop", []string{"EPERM", "does a firewall forbid it? nft list ruleset"}},
			{"a closed port", "10.9.0.2", "", "", "", []string{"ECONNREFUSED", "UDP port 4791 of 10.9.0.2 is closed"}},
			{"a closed port, IPv6", "fd09::2", "", "", "", []string{"ECONNREFUSED", "UDP port 4791 of fd09::2 is closed"}},
			{"a firewall there", "10.9.0.2", "b", "input", "reject", []string{"ECONNREFUSED", "a firewall there rejects it"}},
			{"no such host", "10.9.0.77", "", "", "", []string{"EHOSTUNREACH", "10.9.0.77 cannot be reached"}},
		} {
			if c.host != "" {
				h.sh(drop+rule, c.host, c.hook, c.verdict)
			}
			begin := time.Now()
			out, status := h.run("a", "rping", "-c", "-a", c.addr, "-C", "1")
			for _, want := range c.want {
				if status == 0 || !strings.Contains(out, want) {
					t.Errorf("%s: status %d, %q does not say %q", c.name, status, out, want)
				}
			}
			if took := time.Since(begin); took > 20*time.Second { // it was 74 s
				t.Errorf("%s: after %v", c.name, took)
			}
			if c.host != "" {
				h.sh(forget, c.host)
			}
		}
	})
}

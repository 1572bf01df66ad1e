package main

import (
	"io"
	"regexp"
	"strconv"
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
			{"a firewall here", "10.9.0.2", "a", "output", "drop",
				[]string{"EPERM", "does a firewall forbid it? nft list ruleset"}},
			{"a closed port", "10.9.0.2", "", "", "", []string{"ECONNREFUSED", "UDP port 4791 of 10.9.0.2 is closed"}},
			{"a closed port, IPv6", "fd09::2", "", "", "", []string{"ECONNREFUSED", "UDP port 4791 of fd09::2 is closed"}},
			{"a firewall there", "10.9.0.2", "b", "input", "reject", []string{"ECONNREFUSED", "a firewall there rejects it"}},
			{"no such host", "10.9.0.77", "", "", "", []string{"ETIMEDOUT", "no host answers at this address", "ip neigh"}},
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

// A server whose replies its own firewall drops says so. rping without -P ends then.
func TestReplyThatCannotLeave(t *testing.T) {
	onHosts(t, 1500, 1500, func(h *hosts) {
		server, out := h.begin("b", "rping", "-s", "-a", "10.9.0.2")
		h.sh("ip netns exec b nft 'add table inet f; add chain inet f c { type filter hook output priority 0; }; " +
			"add rule inet f c udp dport 4791 drop'")
		client, _ := h.command("a", "rping", "-c", "-a", "10.9.0.2", "-C", "1")
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		_ = server.Wait()
		for _, want := range []string{"no answer came to the reply", "does a firewall forbid it? nft list ruleset", "EPERM"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the server does not say %q: %s", want, out)
			}
		}
		_ = client.Process.Kill()
		_ = client.Wait()
	})
}

// Requests of a connection whose packets no longer arrive fail early, with the reason.
func TestRequestsThatCannotArrive(t *testing.T) {
	onHosts(t, 1500, 1500, func(h *hosts) {
		for _, c := range []struct{ name, host, hook, verdict, want string }{
			{"a firewall here", "a", "output", "drop", "this host would not send a packet"},
			{"a firewall there", "b", "input", "reject", "has its program ended?"},
		} {
			server, _ := h.command("b", "ib_write_bw", "-u", "18", "-D", "30")
			client, out := h.command("a", "ib_write_bw", "-u", "18", "-D", "30", "10.9.0.2")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			h.awaitPort("b", 18515, true)
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			h.sends("a", "v1a")
			h.sh("ip netns exec %s nft 'add table inet f; add chain inet f c { type filter hook %s priority 0; }; "+
				"add rule inet f c udp dport 4791 %s'", c.host, c.hook, c.verdict)
			_ = client.Wait()
			text := out.String()
			took := regexp.MustCompile(`sent [0-9]+ times in ([0-9.]+)s`).FindStringSubmatch(text)
			if took == nil || !strings.Contains(text, c.want) {
				t.Fatalf("%s: %s", c.name, text)
			}
			if s, err := strconv.ParseFloat(took[1], 64); err != nil || s > 15 { // more than eight times 1.07 s before
				t.Errorf("%s: after %v s", c.name, s)
			}
			h.sh("ip netns exec %s nft flush ruleset", c.host)
			_ = server.Process.Kill()
			_ = server.Wait()
			h.awaitPort("b", 4791, false)
		}
	})
}

// The MTU of a link in the middle becomes smaller while a connection transfers data. The error names it if a router
// reports it, and else the packets that may be too long. rping ends soon after the error.
func TestPathMTUShrinks(t *testing.T) {
	onHosts(t, 9000, 9000, func(h *hosts) {
		h.host("r")
		h.host("c")
		h.cable("a", "r", 9000, 9000, "10.6.0.1/24", "10.6.0.2/24")
		h.cable("r", "c", 9000, 9000, "10.7.0.1/24", "10.7.0.2/24")
		h.sh("ip netns exec r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'")
		h.sh("ip -n a route add 10.7.0.0/24 via 10.6.0.2; ip -n c route add default via 10.7.0.1")
		const deaf = "ip netns exec r nft 'add table inet f; add chain inet f o { type filter hook output priority 0; }; " +
			"add rule inet f o icmp type destination-unreachable drop'"
		for _, c := range []struct {
			name, do string
			want     []string
		}{
			{"a black hole", deaf, []string{"too small an MTU for packets of 4176 bytes", "connect with path MTU 1024 or less"}},
			{"a router reports it", "ip netns exec r nft flush ruleset",
				[]string{"EMSGSIZE", "the MTU of the route to the peer is 1400"}},
		} {
			h.sh("ip -n r link set v3r mtu 9000; %s", c.do)
			server, _ := h.command("c", "ib_write_bw", "-u", "14", "-D", "30")
			client, out := h.command("a", "ib_write_bw", "-u", "14", "-D", "30", "10.7.0.2")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			h.awaitPort("c", 18515, true)
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			h.sends("a", "v2a")
			h.sh("ip -n r link set v3r mtu 1400")
			_ = client.Wait()
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: the error does not say %q: %s", c.name, want, out)
				}
			}
			_ = server.Process.Kill()
			_ = server.Wait()
			h.awaitPort("c", 4791, false)
		}
	})
}

// rping ends a second after the error of a connection that has failed, since nobody answers its DREQ.
func TestRpingEndsAfterFailure(t *testing.T) {
	onHosts(t, 1500, 1500, func(h *hosts) {
		defer h.start("b", "rping", "-s", "-P", "-a", "10.9.0.2")()
		client, out := h.command("a", "rping", "-c", "-a", "10.9.0.2")
		failed := &watcher{Writer: out, word: "rping client failed"}
		client.Stdout, client.Stderr = failed, failed
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		h.sends("a", "v1a")
		h.sh("ip netns exec a nft 'add table inet f; add chain inet f c { type filter hook output priority 0; }; " +
			"add rule inet f c udp dport 4791 drop; add chain inet f d { type filter hook input priority 0; }; " +
			"add rule inet f d udp dport 4791 drop'")
		_ = client.Wait()
		ended := time.Now()
		h.sh("ip netns exec a nft flush ruleset")
		if failed.at.IsZero() || ended.Sub(failed.at) > 5*time.Second { // it was 10 s
			t.Errorf("%v after the error: %s", ended.Sub(failed.at), out)
		}
	})
}

// watcher passes output on, and notes when a word was written first.
type watcher struct {
	io.Writer
	word string
	at   time.Time
}

func (w *watcher) Write(b []byte) (int, error) {
	if w.at.IsZero() && strings.Contains(string(b), w.word) {
		w.at = time.Now()
	}
	return w.Writer.Write(b)
}

// Many requests to a host without a device: it sends one ICMP message a second, and all requests end with it.
func TestOneRefusalEndsAllRequests(t *testing.T) {
	onHosts(t, 1500, 1500, func(h *hosts) {
		begin := time.Now()
		out, status := h.run("a", "cmtime", "-s", "10.9.0.2", "-c", "50")
		if status == 0 || strings.Count(out, "EVENT_UNREACHABLE, error: -111") < 50 || time.Since(begin) > 20*time.Second {
			t.Errorf("status %d after %v\n%s", status, time.Since(begin), out)
		}
	})
}

package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// rulesTimeout bounds the time for a command that lists rules.
const rulesTimeout = 5 * time.Second

// firewall lists the rules of this host that keep packets from UDP port 4791. Only root may read them.
func (r *report) firewall() {
	if os.Geteuid() != 0 {
		return
	}
	for _, c := range []struct {
		command []string
		find    func(r *report, text string)
	}{
		{[]string{"nft", "-n", "list", "ruleset"}, (*report).nftables},
		{[]string{"iptables-legacy-save"}, (*report).iptables},
		{[]string{"ip6tables-legacy-save"}, (*report).iptables},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), rulesTimeout)
		if out, err := exec.CommandContext(ctx, c.command[0], c.command[1:]...).Output(); err == nil {
			c.find(r, string(out))
		}
		cancel()
	}
}

var (
	namesPort = regexp.MustCompile(`\b4791\b`)
	refuses   = regexp.MustCompile(`\b(drop|reject|DROP|REJECT)\b`)
	accepts   = regexp.MustCompile(`\b(accept|ACCEPT)\b`)
	rates     = regexp.MustCompile(`\blimit\b|-m hashlimit\b|\bquota\b`)
	lengths   = regexp.MustCompile(`\blength\b`)
	others    = regexp.MustCompile(`\b[ds]ports?\b|\b(tcp|icmp|icmpv6|sctp|dccp)\b`) // of rules that do not name the port
	hooks     = regexp.MustCompile(`\bhook (\w+)\b.*?(policy (\w+))?;?\s*$`)
)

// partial reports a rule that does not name the port, or accepts it, and yet refuses some of its packets: long ones, or
// those above a rate.
func (r *report) partial(where, rule string) {
	rule = strings.TrimSpace(rule)
	switch named := namesPort.MatchString(rule); {
	case named && accepts.MatchString(rule) && rates.MatchString(rule):
		r.add(note, "firewall", fmt.Sprintf("%s has the rule %q: a rate limit, above which packets of RDMA may be lost",
			where, rule), "accept UDP port 4791 without a limit")
	case named || others.MatchString(rule) || !refuses.MatchString(rule):
	case lengths.MatchString(rule):
		r.add(bad, "firewall", fmt.Sprintf("%s has the rule %q, which drops packets by their length, of UDP port 4791 too",
			where, rule), "accept UDP port 4791 before that rule")
	case rates.MatchString(rule):
		r.add(note, "firewall", fmt.Sprintf("%s has the rule %q: a rate limit, which may hold for UDP port 4791 too",
			where, rule), "accept UDP port 4791 before that rule")
	}
}

// nftables finds the rules of "nft list ruleset" that refuse the port.
func (r *report) nftables(text string) {
	table, chain, hook, closed, opened := "", "", "", false, false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 3 && f[0] == "table":
			table = strings.Join(f[1:len(f)-1], " ")
		case len(f) >= 2 && f[0] == "chain":
			chain, hook, closed, opened = f[1], "", false, false
		case len(f) > 0 && f[0] == "type":
			if m := hooks.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				hook = m[1]
			}
			closed = strings.Contains(line, "policy drop")
		case len(f) > 0 && f[0] == "}" && chain != "":
			if closed && !opened {
				r.closedChain(fmt.Sprintf("nftables: chain %s %s (%s)", table, chain, hook),
					fmt.Sprintf("nft insert rule %s %s udp dport 4791 accept", table, chain))
			}
			chain = ""
		case namesPort.MatchString(line) && refuses.MatchString(line):
			opened = true // the rule says more than the policy
			r.add(bad, "firewall", fmt.Sprintf("nftables: chain %s %s has the rule %q", table, chain, strings.TrimSpace(line)),
				fmt.Sprintf("nft -a list chain %s %s shows its handle; nft delete rule %s %s handle HANDLE", table, chain, table,
					chain))
		case namesPort.MatchString(line) && accepts.MatchString(line):
			opened = true
			r.partial(fmt.Sprintf("nftables: chain %s %s", table, chain), line)
		case chain != "" && !opened:
			r.partial(fmt.Sprintf("nftables: chain %s %s", table, chain), line)
		}
	}
}

// iptables finds the rules of "iptables-save" that refuse the port.
func (r *report) iptables(text string) {
	closed, opened := map[string]bool{}, map[string]bool{}
	table := ""
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = strings.TrimSpace(line[1:])
		case len(f) >= 2 && strings.HasPrefix(f[0], ":") && f[1] == "DROP":
			closed[f[0][1:]] = true
		case len(f) >= 2 && f[0] == "-A" && namesPort.MatchString(line):
			opened[f[1]] = true
			if refuses.MatchString(line) {
				r.add(bad, "firewall", fmt.Sprintf("iptables: table %s has the rule %q", table, strings.TrimSpace(line)),
					"iptables -t "+table+" -D "+strings.Join(f[1:], " "))
			} else {
				r.partial("iptables: table "+table, line)
			}
		case len(f) >= 2 && f[0] == "-A" && !opened[f[1]]:
			r.partial("iptables: table "+table, line)
		}
	}
	for _, chain := range []string{"INPUT", "OUTPUT"} {
		if closed[chain] && !opened[chain] {
			r.closedChain("iptables: chain "+chain, "iptables -I "+chain+" -p udp --dport 4791 -j ACCEPT")
		}
	}
}

// closedChain reports a chain that drops what no rule names.
func (r *report) closedChain(what, remedy string) {
	r.add(note, "firewall", what+" drops what its rules do not accept, and none names UDP port 4791",
		"if other rules do not accept it: "+remedy)
}

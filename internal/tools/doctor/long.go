package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	// unusedPort is a UDP port that hosts do not use: the first one of traceroute.
	unusedPort = 33434
	// longWait is how long the answer of a closed port may take. A host sends one each second.
	longWait = 3500 * time.Millisecond
	// udpHeaders is the length in bytes of the headers of IPv6 and UDP.
	udpHeaders = 40 + 8
)

// long checks that UDP packets as long as the device's path MTU needs pass, beside short ones: some firewalls drop long
// ones, which pings do not show. send is lookup.Unreachable. No device answers a long packet to the RoCE port with a
// message, so a closed port of the peer has to.
func (r *report) long(what string, w *way, peer netip.Addr,
	send func(ctx context.Context, src netip.Addr, dst netip.AddrPort, p lookup.Probe) error) {
	full := w.pathMTU + wire.RoCEv2Headers
	if w.mtu > 0 && w.mtu < full {
		return // reported already
	}
	try := func(port uint16, size int, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		return send(ctx, w.source, netip.AddrPortFrom(peer, port), func(src, dst netip.AddrPort) []byte {
			return wire.HarmlessOf(size-udpHeaders, src, dst)
		})
	}
	const remedy = "nft list ruleset at both ends and on the way: rules with \"length\""
	if err := try(rocePort, full, datagramWait); errors.Is(err, syscall.EPERM) {
		r.add(bad, what, fmt.Sprintf("this host's firewall rejects UDP packets of %d bytes, and passes short ones", full),
			remedy)
		return
	}
	refused := func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
	if !refused(try(unusedPort, 0, longWait)) {
		return // the peer sends no such messages
	}
	if err := try(unusedPort, full, longWait); !refused(err) {
		r.add(bad, what, fmt.Sprintf("UDP packets of %d bytes get no answer from a closed port, short ones do: a firewall "+
			"drops long ones", full), remedy)
	}
}

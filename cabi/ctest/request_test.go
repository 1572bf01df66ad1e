//go:build linux

package ctest

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// request is a packet with a REQ for a listener, whose source takes and sends n READs at a time.
func request(from netip.Addr, to netip.AddrPort, n uint8) []byte {
	mad := make([]byte, wire.MADLen)
	m := cmmsg.Make(mad, cmmsg.KindREQ, 1)
	cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
		LocalID: 1, ServiceID: cmmsg.PSTCP.Service(to.Port()), LocalGUID: 1, LocalQPN: 0x123456,
		InitiatorDepth: n, ResponderResources: n,
		RemoteTimeout: 20, LocalTimeout: 20, MaxRetries: 15, PKey: wire.DefaultPKey, MTU: 3, RetryCount: 7, RNRRetry: 7,
		Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(from), RemoteGID: cmmsg.GID(to.Addr()), HopLimit: 64, AckTimeout: 17},
	})
	m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(from, 4000), to.Addr()))
	p := wire.Fields{
		Opcode: wire.UD | wire.SendOnly, PKey: wire.DefaultPKey, DestQPN: wire.GSIQPN, QKey: wire.GSIQKey,
		SrcQPN: wire.GSIQPN, Payload: mad,
	}
	return binary.BigEndian.AppendUint32(p.Append(nil), 0)
}

func TestC_PARM_09_AcceptTakesNoMoreThanTheDeviceCan(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_lo=127.0.9.4") // as in the program
	program := prepare(t, "cm_depth.c", "-lrdmacm")()
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var why strings.Builder
	program.Stderr = &why
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	port, _ := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	if err != nil || port == 0 {
		t.Errorf("the program printed %q (%v)", line, err)
	}
	from, to := netip.MustParseAddr("127.0.9.5"), netip.MustParseAddr("127.0.9.4")
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: from.AsSlice()}, &net.UDPAddr{IP: to.AsSlice(), Port: wire.Port})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	source := uint16(c.LocalAddr().(*net.UDPAddr).Port)
	b := request(from, netip.AddrPortFrom(to, uint16(port)), 200)
	wire.NewFlow(from, to, source, wire.Port).Seal(b, 0)
	if _, err := c.Write(b); err != nil {
		t.Error(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("%v\n%s", err, why.String())
	}
}

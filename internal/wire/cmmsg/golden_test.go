package cmmsg_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// eachMessage calls check for every CM message that Linux peers sent in the captures.
func eachMessage(t testing.TB, check func(name string, n int, m cmmsg.Msg)) {
	t.Helper()
	for _, name := range captures.Names(t) {
		for _, p := range captures.Read(t, name) {
			if wire.Packet(p.Body()).BTH().DestQPN() != wire.GSIQPN {
				continue
			}
			m, err := cmmsg.Parse(wire.Packet(p.Body()).Payload())
			if err != nil {
				t.Fatalf("%s, packet %d: %v", name, p.N, err)
			}
			check(name, p.N, m)
		}
	}
}

// rebuild decodes a message and builds it again from its fields.
func rebuild(m cmmsg.Msg) cmmsg.Msg {
	again := cmmsg.Make(make([]byte, wire.MADLen), m.Kind(), m.TID())
	d, out := m.Data(), again.Data()
	switch m.Kind() {
	case cmmsg.KindREQ:
		cmmsg.REQ(out).Put(cmmsg.REQ(d).Fields())
	case cmmsg.KindREP:
		cmmsg.REP(out).Put(cmmsg.REP(d).Fields())
	case cmmsg.KindMRA:
		r := cmmsg.MRA(d)
		cmmsg.MRA(out).Put(r.LocalID(), r.RemoteID(), r.About(), r.ServiceTimeout())
	case cmmsg.KindREJ:
		r := cmmsg.REJ(d)
		cmmsg.REJ(out).Put(r.LocalID(), r.RemoteID(), r.About(), r.Reason(), r.ARI())
	case cmmsg.KindRTU:
		cmmsg.RTU(out).Put(cmmsg.RTU(d).LocalID(), cmmsg.RTU(d).RemoteID())
	case cmmsg.KindDREQ:
		r := cmmsg.DREQ(d)
		cmmsg.DREQ(out).Put(r.LocalID(), r.RemoteID(), r.RemoteQPN())
	case cmmsg.KindDREP:
		cmmsg.DREP(out).Put(cmmsg.DREP(d).LocalID(), cmmsg.DREP(d).RemoteID())
	case cmmsg.KindSIDRREQ:
		r := cmmsg.SIDRREQ(d)
		cmmsg.SIDRREQ(out).Put(r.RequestID(), r.PKey(), r.ServiceID())
	case cmmsg.KindSIDRREP:
		cmmsg.SIDRREP(out).Put(cmmsg.SIDRREP(d).Fields())
	case cmmsg.KindLAP:
		r := cmmsg.LAP(d)
		cmmsg.LAP(out).Put(r.LocalID(), r.RemoteID(), r.RemoteQPN(), r.RemoteTimeout(), r.Path())
	case cmmsg.KindAPR:
		r := cmmsg.APR(d)
		cmmsg.APR(out).Put(r.LocalID(), r.RemoteID(), r.Status(), r.Info())
	}
	again.SetECE(m.ECE())
	again.SetPrivate(m.Private())
	return again
}

// TestGoldenReencode decodes every CM message of the Linux peers and builds the same bytes again.
func TestGoldenReencode(t *testing.T) {
	count := map[cmmsg.Kind]int{}
	eachMessage(t, func(name string, n int, m cmmsg.Msg) {
		count[m.Kind()]++
		if again := rebuild(m); !bytes.Equal(again, m) {
			t.Errorf("%s, packet %d: built again as\n% x, captured is\n% x", name, n, []byte(again), []byte(m))
		}
	})
	var got []string
	for _, k := range slices.Sorted(maps.Keys(count)) {
		got = append(got, fmt.Sprintf("%v:%d", k, count[k]))
	}
	if s, want := strings.Join(got, " "), "REQ:9 REJ:1 REP:8 RTU:8 DREQ:9 DREP:9 SIDR_REQ:1 SIDR_REP:1"; s != want {
		t.Errorf("the captures hold %s, want %s", s, want)
	}
}

// TestGoldenText compares messages as text with their hexadecimal form.
func TestGoldenText(t *testing.T) {
	want := map[string]string{
		"rping 1": "REQ id=68720876 service=TCP:7174 guid=505400fffe770002 RC qp=000011 psn=ae0341 resources=1 depth=1" +
			" retry=7 rnr=7 mtu=5" +
			" timeouts=20/20 retries=15 192.168.77.3>192.168.77.2 label=2c33c hops=64 ack=19 from=192.168.77.3:39434" +
			" at=192.168.77.2",
		"rping 2": "REP id=53a8e76b to=68720876 guid=505400fffe770001 qp=000011 psn=a2a2f7 resources=1 depth=1" +
			" rnr=7 delay=15",
		"rping 3":     "RTU id=68720876 to=53a8e76b",
		"rping 40":    "DREQ id=68720876 to=53a8e76b qp=000011",
		"rping 41":    "DREP id=53a8e76b to=68720876",
		"cm_reject 2": "REJ id=00000000 to=6b720876 about=REQ reason=8 (invalid service ID)",
		"udaddy 1":    "SIDR_REQ id=6e720876 service=UDP:7174 pkey=ffff from=192.168.77.3:50569 at=192.168.77.2",
		"udaddy 2":    "SIDR_REP id=6e720876 status=0 (success) service=UDP:7174 qp=000016 qkey=01234567",
		"rping_ipv6 1": "REQ id=6a720876 service=TCP:7174 guid=505400fffe770002 RC qp=000013 psn=ebcafe resources=1" +
			" depth=1 retry=7 rnr=7 mtu=5" +
			" timeouts=20/20 retries=15 fd77::3>fd77::2 label=0a64f hops=64 ack=19 from=[fd77::3]:34967 at=fd77::2",
		"rstream 2": "REP id=5fa8e76b to=6f720876 guid=505400fffe770001 qp=000034 psn=b87eb7 resources=0 depth=0 rnr=7" +
			" delay=15 flow" +
			" private=010201800000000000007fa15800300000002caa0000000200007fa15fd1100000002de50008",
	}
	eachMessage(t, func(name string, n int, m cmmsg.Msg) {
		key := fmt.Sprintf("%s %d", name, n)
		if w, ok := want[key]; ok && m.String() != w {
			t.Errorf("%s:\ngot  %s\nwant %s", key, m, w)
		}
		delete(want, key)
	})
	if len(want) > 0 {
		t.Errorf("not in the captures: %v", want)
	}
}

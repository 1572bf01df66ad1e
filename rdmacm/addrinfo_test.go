package rdmacm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// pathRecord is a struct ibv_path_record from A to B: traffic class 0x44, MTU 1024.
func pathRecord() []byte {
	b := make([]byte, 64)
	a, z := verbs.GIDFromAddr(addrA), verbs.GIDFromAddr(addrB)
	copy(b[8:], z[:])
	copy(b[24:], a[:])
	b[47], b[48], b[49], b[50], b[51], b[54], b[56] = 9, 0x44, 0x81, 0xFF, 0xFF, 0x80|3, 0x80|16
	return b
}

// A route of the hints is the route of the endpoint, as one record of 64 bytes or as data of 72, unless RAI_NOROUTE
// says that there shall be none. Without node and addresses its GIDs are the addresses.
func TestC_GAI_07_C_GAI_09_C_GAI_16_RouteOfTheHints(t *testing.T) {
	in(t, func(w *world) {
		data := append(binary.NativeEndian.AppendUint32(nil, 0x2B), 0, 0, 0, 0)
		data = append(data, pathRecord()...)
		for _, c := range []struct {
			node  string
			hints rdmacm.AddrInfo
			route []byte
			class uint8
		}{
			{addrB.String(), rdmacm.AddrInfo{Route: data}, data, 0x44},
			{addrB.String(), rdmacm.AddrInfo{Route: pathRecord()}, data, 0x44},
			{"", rdmacm.AddrInfo{Route: pathRecord()}, data, 0x44},
			{"", rdmacm.AddrInfo{Route: data, Flags: rdmacm.RAINoRoute}, nil, 0},
		} {
			res := must(rdmacm.GetAddrInfo(bg, c.node, "7471", &c.hints))(w)
			if res.DstAddr != at(addrB, port) || !bytes.Equal(res.Route, c.route) || res.Family != rdmacm.AFInet ||
				c.node == "" && res.SrcAddr != at(addrA, 0) {
				t.Errorf("%q: %+v", c.node, res)
			}
			id := must(w.a.CreateEP(bg, res, nil, qpInit()))(w)
			if p := id.Route().PathRec; len(p) != 1 || p[0].TrafficClass != c.class ||
				(p[0].MTU == verbs.MTU1024) != (c.route != nil) || id.LocalAddr().Addr() != addrA {
				t.Errorf("%q: from %v, path %+v", c.node, id.LocalAddr(), p)
			}
			w.ok(id.Close())
		}
		if res := must(rdmacm.GetAddrInfo(bg, "", "", &rdmacm.AddrInfo{Route: data}))(w); res.DstAddr != at(addrB, 0) {
			t.Errorf("without a service: %v", res.DstAddr)
		}
		for _, n := range []int{1, 63, 65, 73, 128} {
			_, err := rdmacm.GetAddrInfo(bg, "", "1", &rdmacm.AddrInfo{Route: make([]byte, n)})
			w.errno(err, syscall.EINVAL)
		}
	})
}

// With the family AF_IB the addresses are GIDs: the endpoints' requests have no IP header, and more private data.
func TestC_GAI_14_FamilyIB(t *testing.T) {
	in(t, func(w *world) {
		gid := verbs.GIDFromAddr(addrB).String()
		l := must(w.b.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, gid, "7471", &rdmacm.AddrInfo{
			Flags: rdmacm.RAIPassive | rdmacm.RAINumericHost | rdmacm.RAIFamily, Family: rdmacm.AFIB,
		}))(w), nil, qpInit()))(w)
		w.ok(l.Listen(0))
		var came []byte
		got := make(chan *rdmacm.ID)
		go func() {
			s := must(l.GetRequest(bg))(w)
			came = bytes.Clone(s.Event().Conn.PrivateData)
			w.ok(s.Accept(bg, nil))
			got <- s
		}()
		res := must(rdmacm.GetAddrInfo(bg, gid, "7471", &rdmacm.AddrInfo{Family: rdmacm.AFIB}))(w)
		if res.Family != rdmacm.AFIB || res.DstAddr != at(addrB, port) {
			t.Errorf("%+v", res)
		}
		c := must(w.a.CreateEP(bg, res, nil, qpInit()))(w)
		private := bytes.Repeat([]byte{7}, 92)
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: private}))
		s := <-got
		if !l.IsAFIB() || !c.IsAFIB() || !s.IsAFIB() || !bytes.Equal(came, private) {
			t.Errorf("AF_IB: %v, %v, %v; %x", l.IsAFIB(), c.IsAFIB(), s.IsAFIB(), came)
		}
		w.exchange(&end{c, w, nil}, &end{s, w, nil})
		for _, id := range []*rdmacm.ID{c, s, l} {
			w.ok(id.Close())
		}
		// Every address: a passive result without node.
		all := must(rdmacm.GetAddrInfo(bg, "", "7471", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, Family: rdmacm.AFIB}))(w)
		e := must(w.b.CreateEP(bg, all, nil, nil))(w)
		if !e.IsAFIB() || e.SrcPort() != port {
			t.Errorf("bound to %v", e.LocalAddr())
		}
		w.ok(e.Close())
	})
}

// A name has a canonical name, at the side that it is for; an address has none.
func TestC_GAI_11_CanonicalNames(t *testing.T) {
	dst, err := rdmacm.GetAddrInfo(bg, "localhost", "1", nil)
	src, err2 := rdmacm.GetAddrInfo(bg, "localhost", "1", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive})
	num, err3 := rdmacm.GetAddrInfo(bg, "192.0.2.1", "1", nil)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if dst.DstCanonName == "" || dst.SrcCanonName != "" || src.SrcCanonName == "" || src.DstCanonName != "" ||
		num.DstCanonName+num.SrcCanonName != "" {
		t.Errorf("%q and %q, %q and %q, %q", dst.SrcCanonName, dst.DstCanonName, src.SrcCanonName, src.DstCanonName,
			num.DstCanonName)
	}
	if dst.DstAddr.Addr().Unmap().Compare(netip.Addr{}) == 0 {
		t.Error("no address")
	}
}

// The error of a name that is not found names the operation, the name and the cause, in every call that resolves.
func TestNamesThatAreNotFound(t *testing.T) {
	var dns *net.DNSError
	gone, cancel := context.WithCancel(bg)
	cancel() // so that no server is asked
	const name = "nobody.invalid"
	for what, c := range map[string]struct {
		call func() error
		name string
	}{
		"GetAddrInfo": {func() error { _, err := rdmacm.GetAddrInfo(gone, name, "7471", nil); return err }, name},
		"Dial":        {func() error { _, err := rdmacm.Dial(gone, name+":7471", nil); return err }, name},
		"Listen":      {func() error { _, err := rdmacm.Listen(gone, name+":7471", nil); return err }, name},
		"service":     {func() error { _, err := rdmacm.Dial(bg, "127.0.0.1:nothing", nil); return err }, "nothing"},
		"no address": {func() error {
			_, err := rdmacm.GetAddrInfo(bg, name, "1", &rdmacm.AddrInfo{Flags: rdmacm.RAINumericHost})
			return err
		}, name},
		"another family": {func() error {
			_, err := rdmacm.GetAddrInfo(bg, "192.0.2.1", "1", &rdmacm.AddrInfo{Family: rdmacm.AFInet6})
			return err
		}, "192.0.2.1"},
	} {
		err := c.call()
		if err == nil || !strings.HasPrefix(err.Error(), "getaddrinfo: ") || !strings.Contains(err.Error(), c.name) ||
			!errors.As(err, &dns) || !strings.Contains(err.Error(), dns.Err) {
			t.Errorf("%s: %v (%T)", what, err, err)
		}
	}
}

// A port that cannot be one is refused with what is allowed, and the resolver's error stays.
func TestGetAddrInfoPort(t *testing.T) {
	for _, port := range []string{"99999", "no-such-service"} {
		_, err := rdmacm.GetAddrInfo(t.Context(), "192.0.2.1", port, nil)
		if want := fmt.Sprintf("port %q: must be 0 to 65535, or the name of a service", port); err == nil ||
			!strings.Contains(err.Error(), want) || !isAs[*net.AddrError](err) && !isAs[*net.DNSError](err) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func isAs[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

package rdmacm_test

import (
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// "verbena rdma resource show cm_id" shows the IDs of each device, with QP, state and addresses.
func TestReportsHaveIDs(t *testing.T) {
	a, addrA := udpHost(t, 8)
	b, addrB := udpHost(t, 9)
	w := &world{T: t, a: a, b: b}
	l, err := rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: b})
	w.ok(err)
	accepted := make(chan *rdmacm.ID)
	go func() { accepted <- must(l.Accept(bg))(w) }()
	c, err := rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), &rdmacm.Options{Host: a})
	w.ok(err)
	s := <-accepted
	want := map[control.CMID]string{
		{Type: "RC", State: "LISTEN", PS: "TCP",
			Src: l.Addr().String()}: "u9",
		{QP: c.QP().QPN(), Port: 1, Type: "RC", State: "CONNECT", PS: "TCP", Src: c.LocalAddr().String(),
			Dst: c.PeerAddr().String()}: "u8",
		{QP: s.QP().QPN(), Port: 1, Type: "RC", State: "CONNECT", PS: "TCP", Src: s.LocalAddr().String(),
			Dst: s.PeerAddr().String()}: "u9",
	}
	if c.LocalAddr().Addr() != addrA || s.PeerAddr() != c.LocalAddr() {
		t.Errorf("%v is connected to %v", c.LocalAddr(), s.PeerAddr())
	}
	mine := func() (n int) {
		numbers := make(map[uint32]bool)
		reports, _, err := control.Reports(false)
		if err != nil {
			t.Skip(err)
		}
		for _, r := range reports {
			if r.PID != os.Getpid() {
				continue
			}
			for _, d := range r.Devices {
				for _, c := range d.CM {
					if c.Name == "ids" {
						t.Errorf("device %s counts its IDs, %d", d.Name, c.Value)
					}
				}
				for _, id := range d.CMIDs {
					if id.Num == 0 || numbers[id.Num] {
						t.Errorf("an ID has number %d, as another one or none", id.Num)
					}
					numbers[id.Num], id.Num = true, 0
					if n++; want[id] != d.Name {
						t.Errorf("device %s has %+v", d.Name, id)
					}
				}
			}
		}
		return n
	}
	if n := mine(); n != len(want) {
		t.Errorf("%d IDs are shown, want %d", n, len(want))
	}
	w.ok(c.Close())
	w.ok(s.Close())
	w.ok(l.Close())
	if n := mine(); n != 0 {
		t.Errorf("%d IDs are shown when all are closed", n)
	}
	w.ok(a.Close())
	w.ok(b.Close())
}

// A listener at another address of the host answers with reason 28, as Linux does: the hint names that cause too.
func TestRefusedByAnotherAddress(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		_, err := rdmacm.Dial(bg, at(addrB6, port).String(), &rdmacm.Options{Host: w.a})
		if err == nil || !strings.Contains(err.Error(), "reason 28") ||
			!strings.Contains(err.Error(), "listens at another address") {
			t.Error(err)
		}
		l.close()
	})
}

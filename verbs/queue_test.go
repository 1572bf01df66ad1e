package verbs

import (
	"encoding/json"
	"math/rand/v2"
	"syscall"
	"testing"
)

// TestEventQueueAgainstModel pushes, takes and purges at random and compares with a plain list.
func TestEventQueueAgainstModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	vctx, _ := openFake(t)
	q := &vctx.async
	var model []AsyncEvent
	owners := []*ackCount{nil, {}, {}}
	for i := range 20000 {
		switch r := rnd.IntN(1000); {
		case r == 0: // close an object and create another one
			k := 1 + rnd.IntN(2)
			q.purge(owners[k])
			var kept []AsyncEvent
			for _, ev := range model {
				if ev.of != owners[k] {
					kept = append(kept, ev)
				}
			}
			model, owners[k] = kept, &ackCount{}
		case r < 500+i/100: // with time more takes than pushes
			ev, err := vctx.TryGetAsyncEvent()
			if len(model) == 0 {
				refused(t, err, EAGAIN)
				continue
			}
			if err != nil || ev.Type != model[0].Type || ev.of != model[0].of {
				t.Fatalf("step %d: %+v, %v; want %+v", i, ev, err, model[0])
			}
			model = model[1:]
		default:
			ev := AsyncEvent{Type: EventType(i), of: owners[rnd.IntN(3)]}
			vctx.raise(ev)
			model = append(model, ev)
		}
	}
	if len(q.items) > 2*len(model)+64 {
		t.Errorf("a ring of %d places for %d events", len(q.items), len(model))
	}
}

// A queue of which half is taken moves its events to the front instead of growing.
func TestEventQueueReusesItsRoom(t *testing.T) {
	q := new(eventQueue[AsyncEvent])
	q.items = make([]AsyncEvent, 0, 4)
	push := func(types ...EventType) {
		for _, e := range types {
			q.push(AsyncEvent{Type: e})
		}
	}
	push(1, 2, 3, 4)
	for range 2 {
		q.take(false)
	}
	push(5, 6)
	if cap(q.items) != 4 {
		t.Errorf("room for %d events", cap(q.items))
	}
	for want := EventType(3); want <= 6; want++ {
		if ev, found, _ := q.take(false); !found || ev.Type != want {
			t.Errorf("%v, %v; want %v", ev.Type, found, want)
		}
	}
}

// More acknowledgements than events acknowledge all, and not those that follow.
func TestAckOfTooManyEvents(t *testing.T) {
	var a ackCount
	a.take()
	a.take()
	a.ack(5)
	if a.acked != 2 {
		t.Errorf("%d of 2 are acknowledged", a.acked)
	}
	a.take()
	a.ack(0)
	if a.delivered != 3 || a.acked != 2 {
		t.Errorf("%d of %d are acknowledged", a.acked, a.delivered)
	}
	a.ack(1)
	a.wait()
}

func TestQPInfoJSON(t *testing.T) {
	info := QPInfo{Type: QPTypeRC, QPN: 1, PSN: 2, GID: mustGID("::ffff:192.0.2.1"), MTU: MTU1024}
	text, err := json.Marshal(map[string]any{"qp": info})
	ok(t, err)
	if string(text) != `{"qp":"RC qpn=0x000001 psn=0x000002 gid=::ffff:192.0.2.1 lid=0 mtu=1024 rd_atomic=0 qkey=0x0"}` {
		t.Errorf("%s", text)
	}
	var back struct{ QP QPInfo }
	ok(t, json.Unmarshal(text, &back))
	if back.QP != info {
		t.Errorf("%+v", back.QP)
	}
	if json.Unmarshal([]byte(`{"qp":"RC"}`), &back) == nil || back.QP != info {
		t.Error("an invalid text was accepted")
	}
	text, err = json.Marshal(struct{ QP QPInfo }{}) // a field that is not set
	ok(t, err)
	ok(t, json.Unmarshal(text, &back))
	if back.QP != (QPInfo{}) {
		t.Errorf("%s: %+v", text, back.QP)
	}
}

func TestFlagTexts(t *testing.T) {
	for got, want := range map[string]string{
		(PortCMSup | PortIPBasedGIDs).String():          "CM_SUP|IP_BASED_GIDS",
		(PortInfoExtSup | PortLinkSpeedXDRSup).String(): "INFO_EXT_SUP|LINK_SPEED_XDR_SUP",
		QPFGRHRequired.String():                         "GRH_REQUIRED",
		(ReregChangePD | 8).String():                    "CHANGE_PD|0x8",
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// TestDriverQueriesFail: if the driver's query of a limit fails, so does the call that needs the limit.
func TestDriverQueriesFail(t *testing.T) {
	way := goodAH()
	calls := map[string]func(*QP) error{
		"QueryPort create_ah":    func(qp *QP) error { _, err := qp.PD().CreateAH(&way); return err },
		"GIDTable create_ah":     func(qp *QP) error { _, err := qp.PD().CreateAH(&way); return err },
		"QueryPort attach_mcast": func(qp *QP) error { return qp.AttachMcast(mustGID("ff0e::1"), 0) },
		"QueryPort local_info":   func(qp *QP) error { _, err := qp.LocalInfo(); return err },
		"GIDTable local_info":    func(qp *QP) error { _, err := qp.LocalInfo(); return err },
		"QueryQP query_qp":       func(qp *QP) error { _, _, err := qp.Query(0); return err },
		"QueryQP modify_qp": func(qp *QP) error {
			forceState(qp, qp.drv.(*fakeQP), QPSSQD)
			return qp.Modify(&QPAttr{}, 0)
		},
		"QueryPort modify_qp": func(qp *QP) error {
			return qp.Modify(&QPAttr{QPState: QPSInit, PortNum: 1}, transitionsOf[QPTypeUD][move{QPSReset, QPSInit}].required)
		},
		"GIDTable query_gid_table": func(qp *QP) error { _, err := qp.Context().QueryGIDTable(); return err },
		"QueryPort query_gid":      func(qp *QP) error { _, err := qp.Context().QueryGID(1, 0); return err },
	}
	for name, call := range calls {
		vctx, drv := openFake(t)
		qp, _ := newQP(t, newPD(t, vctx), QPTypeUD)
		var query, op string
		for i := range name {
			if name[i] == ' ' {
				query, op = name[:i], name[i+1:]
			}
		}
		drv.fail[query] = syscall.EIO
		refused(t, call(qp), syscall.EIO, op)
		if qp.State() != QPSReset && op != "modify_qp" {
			t.Errorf("%s: state %v", name, qp.State())
		}
	}
}

func TestLocalInfoWithoutGIDs(t *testing.T) {
	dev := newFakeDevice()
	dev.gids = nil
	vctx, _ := openDevice(t, dev)
	qp, _ := newQP(t, newPD(t, vctx), QPTypeRC)
	_, err := qp.LocalInfo()
	refused(t, err, ENODATA, "the GID table of port 1 is empty")
	const v4, linkLocal, v6 = "::ffff:192.0.2.1", "fe80::1", "2001:db8::1"
	for _, c := range []struct {
		table []string
		want  int
	}{
		{[]string{"::", linkLocal, v6}, 2}, {[]string{"::", linkLocal}, 1}, {[]string{v6, linkLocal, v4}, 2},
		{[]string{v4, v6, v4}, 0}, {[]string{linkLocal, v6, v6}, 1},
	} {
		dev.gids, qp.local = nil, nil
		for _, g := range c.table {
			dev.gids = append(dev.gids, GIDEntry{GID: mustGID(g)})
		}
		if info := must(qp.LocalInfo())(t); info.GID != dev.gids[c.want].GID || qp.sgid != c.want {
			t.Errorf("%v: %v, index %d", c.table, info, qp.sgid)
		}
	}
}

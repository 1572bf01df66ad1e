package conformance

import (
	"errors"

	"github.com/verbena-rdma/verbena/verbs"
)

// Completion events (section 44).
var notifyCases = []testCase{
	{"V_NTF_01_V_NTF_05_OneRequestOneEvent", oneEvent},
	{"V_NTF_02_OnlyCompletionsAfterTheRequest", onlyLater},
	{"V_NTF_03_AnyCompletion", anyCompletion},
	{"V_NTF_04_V_SEND_10_SolicitedOnly", solicitedOnly},
	{"V_NTF_04_FailuresCountAsSolicited", failuresWake},
	{"V_EV_03_TheEventConsumesNoCompletion", eventConsumesNothing},
	{"V_EV_06_V_EV_07_NothingIsMissedInThisOrder", nothingMissed},
}

// asleep checks that there is no completion event.
func (t *T) asleep(ch *verbs.CompChannel, why string) {
	t.Helper()
	t.Pause(moment)
	if cq, err := ch.TryGetEvent(); !errors.Is(err, verbs.EAGAIN) {
		if err == nil {
			cq.AckEvents(1)
		}
		t.Errorf("a completion event although %s (%v)", why, err)
	}
}

// awake waits for a completion event of the CQ and acknowledges it.
func (t *T) awake(ch *verbs.CompChannel, cq *verbs.CQ) {
	t.Helper()
	var got *verbs.CQ
	ok := t.Await(func() bool {
		var err error
		got, err = ch.TryGetEvent()
		if err != nil && !errors.Is(err, verbs.EAGAIN) {
			t.Fatal(err)
		}
		return err == nil
	}, waitLimit)
	if !ok {
		t.Fatal("no completion event")
	}
	if got != cq {
		t.Error("the event is of another CQ")
	}
	got.AckEvents(1)
}

// listener is an end whose receive CQ has a completion channel.
type listener struct {
	a, b   *end
	qa, qb *verbs.QP
	ch     *verbs.CompChannel
	cq     *verbs.CQ
}

func (t *T) listener() *listener {
	t.Helper()
	l := &listener{}
	l.a, l.b = t.ends()
	l.ch = closing(t, get(l.b.ctx.CreateCompChannel())(t))
	l.cq = l.b.cq(64, &verbs.CQOptions{Channel: l.ch})
	l.qa, l.qb = onCQ(l.a, l.b, l.cq)
	return l
}

func (l *listener) receive(n int) {
	l.a.t.Helper()
	receive(l.a, l.b, l.qa, l.qb, 0, n)
}

func oneEvent(t *T) {
	l := t.listener()
	l.receive(1)
	t.asleep(l.ch, "the CQ was not armed")
	t.good(l.cq, 1)
	for range 3 {
		t.must(l.cq.ReqNotify(false))
		t.must(l.cq.ReqNotify(false)) // has no further effect
		l.receive(3)
		t.awake(l.ch, l.cq)
		t.asleep(l.ch, "one event was requested")
		l.receive(1)
		t.asleep(l.ch, "the CQ was not armed again")
		t.good(l.cq, 4)
	}
}

func onlyLater(t *T) {
	l := t.listener()
	l.receive(2)
	want := 3
	if t.adapter { // which counts those that are not polled
		t.good(l.cq, 2)
		want = 1
	}
	t.must(l.cq.ReqNotify(false))
	t.asleep(l.ch, "the completions are older than the request")
	l.receive(1)
	t.awake(l.ch, l.cq)
	t.good(l.cq, want)
}

func anyCompletion(t *T) {
	l := t.listener()
	ch := closing(t, get(l.a.ctx.CreateCompChannel())(t))
	cq := l.a.cq(8, &verbs.CQOptions{Channel: ch})
	qa := l.a.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SendCQ = cq })
	qb := l.b.qp(verbs.QPTypeRC, nil)
	t.join(qa, qb, nil)
	t.must(cq.ReqNotify(false))
	t.must(qa.PostSend(l.a.rdma(verbs.WRRDMAWrite, 1, l.b, 0, 8)))
	t.awake(ch, cq) // a successful send
	t.must(cq.ReqNotify(false))
	bad := l.a.rdma(verbs.WRRDMAWrite, 1, l.b, 0, 8)
	bad.RKey ^= 0x55
	t.must(qa.PostSend(bad))
	t.awake(ch, cq) // a failed one
	t.must(l.cq.ReqNotify(false))
	l.receive(1)
	t.awake(l.ch, l.cq) // a receive
}

func solicitedOnly(t *T) {
	l := t.listener()
	// Successful sends are not solicited.
	ch := closing(t, get(l.a.ctx.CreateCompChannel())(t))
	cq := l.a.cq(8, &verbs.CQOptions{Channel: ch})
	qa := l.a.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SendCQ = cq })
	qb := l.b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.RecvCQ = l.cq })
	t.join(qa, qb, nil)
	t.must(cq.ReqNotify(true))
	t.must(l.cq.ReqNotify(true))
	t.must(qb.PostRecv(l.b.recv(1, 0, 10)))
	t.must(qa.PostSend(l.a.send(1, 0, 1)))
	t.good(cq, 1)
	t.asleep(ch, "a send was successful")
	t.asleep(l.ch, "the message was not solicited")
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWriteWithImm} {
		t.must(qb.PostRecv(l.b.recv(1, 0, 10), l.b.recv(2, 0, 10)))
		wr := l.a.rdma(op, 1, l.b, 0, 1)
		t.must(qa.PostSend(wr))
		t.good(cq, 1)
		t.asleep(l.ch, "the message was not solicited")
		wr.Flags |= verbs.SendSolicited
		t.must(qa.PostSend(wr))
		t.awake(l.ch, l.cq)
		t.good(cq, 1)
		t.must(l.cq.ReqNotify(true))
	}
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd} {
		wr := l.a.rdma(op, 1, l.b, 0, 8)
		wr.Flags |= verbs.SendSolicited
		t.refused("SOLICITED with "+op.String(), qa.PostSend(wr), verbs.EINVAL)
	}
}

func failuresWake(t *T) {
	l := t.listener()
	t.must(l.qb.PostRecv(l.b.recv(1, 0, 1)))
	t.must(l.cq.ReqNotify(true))
	t.must(l.qa.PostSend(l.a.send(1, 0, 2))) // too long
	t.awake(l.ch, l.cq)
	same(t, "status", t.poll(l.cq, 1)[0].Status, verbs.WCLocLenErr)
}

func eventConsumesNothing(t *T) {
	l := t.listener()
	t.must(l.cq.ReqNotify(false))
	l.receive(2)
	t.awake(l.ch, l.cq)
	t.good(l.cq, 2)
}

func nothingMissed(t *T) {
	l := t.listener()
	t.must(l.cq.ReqNotify(false))
	const messages = 200
	wcs := make([]verbs.WC, 3)
	got, empty, unacked := 0, 0, 0
	for i := 0; got < messages; i++ {
		// Bursts of various sizes, some of which arrive during a poll.
		for sent := range min(1+i%4, messages-got) {
			t.must(l.qb.PostRecv(l.b.recv(uint64(got+sent), 0, 10)))
			// The receiver is notified before the sender: outstanding acknowledgements may exceed the send
			// queue.
			if !t.Await(func() bool { unacked -= l.drain(); return unacked < 16 }, waitLimit) {
				t.Fatalf("%d sends without a completion", unacked)
			}
			t.must(l.qa.PostSend(l.a.send(0, 0, 1)))
			unacked++
		}
		for burst := min(1+i%4, messages-got); burst > 0; {
			t.awake(l.ch, l.cq)
			t.must(l.cq.ReqNotify(false))
			n := 1
			for seen := 0; n > 0; seen += n {
				n = get(l.cq.Poll(wcs))(t)
				for k := range n {
					same(t, "wr_id", wcs[k].WRID, uint64(got+k))
				}
				if n == 0 && seen == 0 {
					empty++ // no error: its completion was polled before
				}
				got, burst = got+n, burst-n
			}
		}
	}
	t.Logf("%d of the events found an empty CQ", empty)
	for { // the event of a completion that was polled already
		if _, err := l.ch.TryGetEvent(); err != nil {
			break
		}
		l.cq.AckEvents(1)
		same(t, "an empty CQ", get(l.cq.Poll(wcs))(t), 0)
	}
}

// drain polls the sender's completions and returns their number.
func (l *listener) drain() int {
	var wcs [16]verbs.WC
	return get(l.a.sendCQ.Poll(wcs[:]))(l.a.t)
}

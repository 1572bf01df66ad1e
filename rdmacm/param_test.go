package rdmacm_test

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The zero values of ConnParam permit READs and wait for receives; Zero is the number 0.
func TestConnParamDefaults(t *testing.T) {
	const most = 128 // of the device
	for name, c := range map[string]struct {
		connect, accept         *rdmacm.ConnParam
		clientReads, peerReads  uint8 // initiator depths of the QPs
		retries, clientRNR, rnr uint8
	}{
		"none":  {nil, nil, most, most, 7, 7, 7},
		"empty": {&rdmacm.ConnParam{}, &rdmacm.ConnParam{}, most, most, 7, 7, 7},
		"no READs": {&rdmacm.ConnParam{ResponderResources: rdmacm.Zero, InitiatorDepth: rdmacm.Zero}, &rdmacm.ConnParam{},
			0, 0, 7, 7, 7},
		"no retries": {&rdmacm.ConnParam{RetryCount: rdmacm.Zero, RNRRetryCount: rdmacm.Zero},
			&rdmacm.ConnParam{RNRRetryCount: rdmacm.Zero}, most, most, 0, 0, 0},
		"the server's": {&rdmacm.ConnParam{}, &rdmacm.ConnParam{ResponderResources: rdmacm.Zero, InitiatorDepth: 3},
			0, 3, 7, 7, 7},
	} {
		in(t, func(w *world) {
			l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b, Param: c.accept}))(w)
			got := w.accepts(l, 1)
			client := must(rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), &rdmacm.Options{Host: w.a, Param: c.connect}))(w)
			server := <-got
			a, _, _ := client.QP().Query(0)
			b, _, _ := server.QP().Query(0)
			if a.MaxRdAtomic != c.clientReads || b.MaxRdAtomic != c.peerReads || a.RetryCnt != c.retries ||
				a.RNRRetry != c.clientRNR || b.RNRRetry != c.rnr {
				t.Errorf("%s: READs %d and %d, retries %d, RNR retries %d and %d", name, a.MaxRdAtomic, b.MaxRdAtomic, a.RetryCnt,
					a.RNRRetry, b.RNRRetry)
			}
			w.ok(client.Close())
			w.ok(server.Close())
			w.ok(l.Close())
		})
	}
}

// A READ of a connection without READs fails, and the error names the fields.
func TestReadWithoutInitiatorDepth(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		got := w.accepts(l, 1)
		c := must(rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), &rdmacm.Options{
			Host: w.a, Param: &rdmacm.ConnParam{InitiatorDepth: rdmacm.Zero},
		}))(w)
		s := <-got
		mr := must(c.RegMsgs(make([]byte, 8)))(w)
		w.ok(c.PostRead(1, mr.Bytes(), mr, verbs.SendSignaled, 0x1000, 1))
		wc := must(c.GetSendComp(bg))(w)
		if text := wc.Err().Error(); wc.Status != verbs.WCLocQPOpErr || !strings.Contains(text, "ConnParam.InitiatorDepth") ||
			!strings.Contains(text, "ResponderResources of the peer") {
			t.Errorf("%v", wc.Err())
		}
		w.ok(mr.Close())
		w.ok(c.Close())
		w.ok(s.Close())
		w.ok(l.Close())
	})
}

package verbs

import "testing"

func TestECE(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSInit)
	_, err := qp.QueryECE()
	refused(t, err, EOPNOTSUPP, "query_ece")
	refused(t, qp.SetECE(ECE{}), EOPNOTSUPP, "set_ece")
	with := &eceQP{fakeQP: drv}
	qp.drv = with
	good := ECE{VendorID: 0xffffff, Options: 5}
	ok(t, qp.SetECE(good))
	if got := must(qp.QueryECE())(t); got != good {
		t.Errorf("%+v", got)
	}
	refused(t, qp.SetECE(ECE{VendorID: 1 << 24}), EINVAL, "0 to 0xffffff")
	for s := QPSReset; s <= QPSErr; s++ {
		forceState(qp, drv, s)
		if err := qp.SetECE(ECE{Options: 9}); s > QPSInit {
			refused(t, err, EINVAL, "RESET or INIT")
		} else {
			ok(t, err)
		}
	}
	if with.e.Options != 9 {
		t.Errorf("%+v", with.e)
	}
	ok(t, qp.Close())
	_, err = qp.QueryECE()
	refused(t, err, EINVAL, "closed")
}

type eceQP struct {
	*fakeQP
	e ECE
}

func (q *eceQP) QueryECE() (ECE, error) { return q.e, nil }
func (q *eceQP) SetECE(e ECE) error     { q.e = e; return nil }

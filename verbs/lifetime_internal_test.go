package verbs

import (
	"errors"
	"strings"
	"testing"
)

// TestUsersOfAnObject checks the counts of users of one kind and of several, in any order.
func TestUsersOfAnObject(t *testing.T) {
	var l lifetime
	if l.has(kindPD) || l.has(kindQP) {
		t.Error("a new object has users")
	}
	for _, k := range []kind{kindQP, kindQP, kindMR, kindPD, kindQP} {
		if !l.use(k) {
			t.Fatalf("use of %s refused", kindNames[k])
		}
	}
	err := l.close("dealloc_pd", role("PD"))
	if !errors.Is(err, EBUSY) || !strings.Contains(err.Error(), "still used by 1 PD, 1 MR, 3 QPs") {
		t.Error(err)
	}
	for _, k := range []kind{kindQP, kindQP, kindQP} {
		l.drop(k)
	}
	if l.has(kindQP) || !l.has(kindMR) || !l.has(kindPD) || l.has(kindCQ) {
		t.Errorf("%d QPs, %d MRs, %d PDs, %d CQs", l.count(kindQP), l.count(kindMR), l.count(kindPD), l.count(kindCQ))
	}
	l.drop(kindMR)
	l.drop(kindPD)
	if err := l.close("dealloc_pd", role("PD")); err != nil {
		t.Error(err)
	}
	if l.use(kindQP) {
		t.Error("a closed object got a user")
	}
	l.reopen()
	if !l.use(kindQP) || !l.has(kindQP) {
		t.Error("an object that was opened again gets no user")
	}
}

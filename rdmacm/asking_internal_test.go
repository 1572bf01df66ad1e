package rdmacm

import (
	"net/netip"
	"syscall"
	"testing"
)

// What one request hears ends the others to the same address, and no later ones.
func TestRequestsShareWhatTheyHear(t *testing.T) {
	var a asking
	here := netip.MustParseAddr("fe80::1%eth0")
	ends := askedEnds{here, netip.MustParseAddr("fe80::2%eth0")}
	first, leaveFirst := a.join(t.Context(), ends)
	second, leaveSecond := a.join(t.Context(), ends)
	other, leaveOther := a.join(t.Context(), askedEnds{here, netip.MustParseAddr("fe80::2%eth1")})
	leaveFirst()
	a.tell(ends, syscall.ECONNREFUSED)
	if err := heard(first); err != nil || first.Err() == nil {
		t.Errorf("the request that has ended: %v, its context is %v", err, first.Err())
	}
	if err := heard(second); err != syscall.ECONNREFUSED || second.Err() == nil {
		t.Errorf("the second request: %v, %v", err, second.Err())
	}
	if err := heard(other); err != nil || other.Err() != nil {
		t.Errorf("a request to another address: %v, %v", err, other.Err())
	}
	late, leaveLate := a.join(t.Context(), ends)
	if err := heard(late); err != nil || late.Err() != nil {
		t.Errorf("a later request: %v, %v", err, late.Err())
	}
	leaveSecond()
	leaveOther()
	leaveLate()
	if len(a.waiting) != 0 {
		t.Errorf("left over: %v", a.waiting)
	}
}

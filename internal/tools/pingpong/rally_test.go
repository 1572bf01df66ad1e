package pingpong

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// A peer that has what it wants may end while a message for it is on its way. That message's failure, which the same
// poll may return, is none of the program if all of its own messages have been sent and received.
func TestFailuresAfterTheLastMessageDoNotCount(t *testing.T) {
	failed := verbs.WC{WRID: sendWRID, Status: verbs.WCRetryExcErr}
	g := &game{variant: &variant{}, options: &options{iters: 10}}
	s := &score{sent: 10, received: 12}
	if err := g.count(s, []verbs.WC{failed}); err != nil {
		t.Errorf("full score: %v", err)
	}
	for _, s := range []*score{{sent: 9, received: 12}, {sent: 10, received: 9}} {
		var status *statusError
		if err := g.count(s, []verbs.WC{failed}); !errors.As(err, &status) {
			t.Errorf("%d sent, %d received: %v", s.sent, s.received, err)
		}
	}
}

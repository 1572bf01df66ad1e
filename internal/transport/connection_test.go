package transport

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/psn"
)

func TestMark(t *testing.T) {
	qp := &QP{}
	for _, last := range []uint32{0, 5, psn.Mask} {
		qp.req.una = psn.Add(last, -100)
		m := qp.MarkOf(last)
		if m.Passed() {
			t.Errorf("PSN %#x: acknowledged at once", last)
		}
		if qp.req.una = last; m.Passed() {
			t.Errorf("PSN %#x: passed while it is awaited", last)
		}
		if qp.req.una = psn.Next(last); !m.Passed() {
			t.Errorf("PSN %#x: not passed by its acknowledgement", last)
		}
		if qp.req.life++; m.Passed() {
			t.Errorf("PSN %#x: passed in another life of the QP", last)
		}
		if !m.Of(qp) || m.Of(&QP{}) {
			t.Error("the mark does not belong to its QP")
		}
	}
	if (Mark{}).Passed() {
		t.Error("no mark is passed")
	}
}

// Marks from before a reset are never passed.
func TestMarkOfAQPThatWasReset(t *testing.T) {
	qp := &QP{}
	qp.attr.MTU = 1024
	qp.attr.SQPSN = 7
	qp.req.init(&QP{Config: Config{SQ: NewSendQueue(1, 1, 0)}})
	qp.req.qp = qp
	qp.req.start()
	m := qp.MarkOf(7)
	qp.attr.SQPSN = 100
	qp.req.start()
	if m.Passed() {
		t.Error("a mark was passed by a reset")
	}
}

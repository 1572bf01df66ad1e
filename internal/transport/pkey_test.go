package transport

import (
	"fmt"
	"testing"
)

// Two QPs communicate if the low 15 bits of their P_Keys are equal and at least one of them is a full member. The
// suite's devices are full members, so that only here our QP is a limited one.
func TestV_PKEY_04_FullAndLimitedMembers(t *testing.T) {
	keys := []uint16{0x8001, 0x0001, 0x8002, 0x0002, 0xFFFF, 0x7FFF, 0xC001, 0x4001}
	for _, ours := range keys {
		for _, theirs := range keys {
			s := newStage(t)
			for _, line := range []string{"qp ud", "region A", "recv 1 A+0/100"} {
				if err := s.doLine(line); err != nil {
					t.Fatal(err)
				}
			}
			s.qp.attr.PKey = ours
			s.log = nil
			if err := s.doLine(fmt.Sprintf("in SEND_ONLY psn=7 data=hello pkey=%#x", theirs)); err != nil {
				t.Fatal(err)
			}
			talk := ours&0x7FFF == theirs&0x7FFF && (ours >= 0x8000 || theirs >= 0x8000)
			if bad := s.qp.Counters.BadPKey; (bad == 0) != talk || bad > 1 || (len(s.log) == 1) != talk {
				t.Errorf("%#x with %#x: counted %d, effects %q, want communication: %v", ours, theirs, bad, s.log, talk)
			}
		}
	}
}

// The requester refuses what a type of QP does not have, without help of the verbs package. SEND_WITH_INV on UC, which
// the manual has, is not a packet.
func TestV_SEND_07_OperationsOfTheTypes(t *testing.T) {
	sends := []Op{OpSend, OpSendImm}
	datagrams := append([]Op{OpTSO}, sends...)
	unreliable := append([]Op{OpWrite, OpWriteImm, OpLocalInv, OpBindMW}, sends...)
	reliable := append([]Op{OpSendInv, OpRead, OpCmpSwap, OpFetchAdd, OpFlush, OpAtomicWrite}, unreliable...)
	for typ, ops := range map[Type][]Op{UD: datagrams, UC: unreliable, RC: reliable, XRCSend: reliable} {
		has := map[Op]bool{}
		for _, op := range ops {
			has[op] = true
		}
		for op := range Op(64) {
			if typ.does(op) != has[op] {
				t.Errorf("type %d, operation %d: %v", typ, op, typ.does(op))
			}
		}
	}
}

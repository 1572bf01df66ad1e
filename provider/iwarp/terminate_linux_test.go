package iwarp_test

import (
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// asyncEvent waits for an event of a context and acknowledges it.
func asyncEvent(t *testing.T, c *verbs.Context, want verbs.EventType) {
	t.Helper()
	ctx, cancel := limit()
	defer cancel()
	ev, err := c.GetAsyncEvent(ctx)
	must(t, err)
	if ev.Type != want {
		t.Errorf("event %v, want %v", ev.Type, want)
	}
	ev.Ack()
}

// A peer's Terminate, one of each layer and type, becomes the status of the READ that it names, flushes everything
// else, and is reported by QP_FATAL and DISCONNECTED.
func TestI_TERM_02_I_TERM_03_TerminatesOfThePeer(t *testing.T) {
	t.Setenv("VERBENA_IWARP_P2P", "0")
	for _, c := range []struct {
		code  uint16
		names bool // the READ
		want  verbs.WCStatus
	}{
		{0x0000, true, verbs.WCRemOpErr}, {0x0102, true, verbs.WCRemAccessErr}, {0x0206, true, verbs.WCRemInvReqErr},
		{0x1000, true, verbs.WCRemOpErr}, {0x1100, false, verbs.WCWRFlushErr}, {0x1202, true, verbs.WCRemInvReqErr},
		{0x2002, false, verbs.WCWRFlushErr}, {0x0105, false, verbs.WCWRFlushErr}, // the RFCs do not have the last one
	} {
		e, peer := rawServer(t)
		must(t, e.QP().PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMARead, SGList: e.sge(0, 8), RemoteAddr: 1, RKey: 2}))
		read := readSegment(t, peer)
		if read[1] != 0x41 {
			t.Fatalf("the client sends % x, want a Read Request", read)
		}
		data := append(binary.BigEndian.AppendUint16(nil, c.code), 0, 0)
		if c.names {
			data[2] = 0xC0
			data = append(binary.BigEndian.AppendUint16(data, uint16(len(read))), read[:18]...)
		}
		_, err := peer.Write(fpdu(untagged(lastUntagged, 0x47, 2, 1, 0, data...)))
		must(t, err)
		must(t, peer.CloseWrite())
		if wc := e.wait(e.SendCQ()); wc.WRID != 2 || wc.Status != c.want {
			t.Errorf("%04x: the READ: %+v, want %v", c.code, wc, c.want)
		}
		if wc := e.wait(e.RecvCQ()); wc.WRID != 1 || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("%04x: the receive: %+v", c.code, wc)
		}
		asyncEvent(t, e.Verbs(), verbs.EventQPFatal)
		must(t, event(t, e.ch, rdmacm.EventDisconnected).Ack())
	}
}

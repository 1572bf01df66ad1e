package soft_test

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// ipoib makes a message of IP over InfiniBand of an Ethernet frame.
func ipoib(frame []byte) []byte { return cat(frame[12:14], be16(0), frame[14:]) }

// TestV_SEND_13_V_WC_04_IPCsumOfDatagrams: with IP_CSUM the checksums of an IPoIB message are computed, and the
// receiver reports those that are right.
func TestV_SEND_13_V_WC_04_IPCsumOfDatagrams(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		if flags := get(a.ctx.QueryDevice())(t).DeviceCapFlags; flags&verbs.DeviceUDIPCsum == 0 {
			t.Errorf("capabilities %v", flags)
		}
		qa, qb, ah := udPair(t, a, b)
		four := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, []byte("odd"))))
		six := eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1, 2, []byte("even"))))
		for i, c := range []struct {
			message, want []byte
			flags         verbs.SendFlags
			ok            bool
		}{
			{ipoib(four), ipoib(four), 0, false},
			{ipoib(four), ipoib(summed(bytes.Clone(four))), verbs.SendIPCsum, true},
			{ipoib(six), ipoib(summed(bytes.Clone(six))), verbs.SendIPCsum, false}, // IP_CSUM_OK is for IPv4
			{[]byte("no packet"), []byte("no packet"), verbs.SendIPCsum, false},
			{[]byte{8}, []byte{8}, verbs.SendIPCsum, false},
			{nil, nil, verbs.SendIPCsum, false},
		} {
			must(t, qb.PostRecv(recv(b, 1, 2000)))
			copy(a.buf, c.message)
			wr := send(a, len(c.message))
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qb.QPN(), verbs.DefaultQKey
			wr.Flags |= c.flags
			must(t, qa.PostSend(wr))
			a.good(1)
			r := b.good(1)[0]
			if got := b.buf[40:r.ByteLen]; !bytes.Equal(got, c.want) || (r.WCFlags&verbs.WCIPCsumOK != 0) != c.ok {
				t.Errorf("message %d: %v, % x\nwant % x", i, r.WCFlags, got, c.want)
			}
			if !bytes.Equal(a.buf[:len(c.message)], c.message) {
				t.Error("the program's memory was changed")
			}
		}
	})
}

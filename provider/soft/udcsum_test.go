package soft_test

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"slices"
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
		long := eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2, bytes.Repeat([]byte("long"), 240))))
		six := eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1, 2, []byte("even"))))
		for i, c := range []struct {
			message, want []byte
			flags         verbs.SendFlags
			ok            bool
		}{
			{ipoib(four), ipoib(four), 0, false},
			{ipoib(four), ipoib(summed(bytes.Clone(four))), verbs.SendIPCsum, true},
			{ipoib(long), ipoib(summed(bytes.Clone(long))), verbs.SendIPCsum, true},
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

// TestV_WR_19_SegmentsOfDatagrams: each datagram of a TSO request has the header, with its own lengths, sequence
// number, flags and checksums, and the next MSS bytes. Datagrams may overtake others: the first ones to a process go
// over UDP until there is shared memory.
func TestV_WR_19_SegmentsOfDatagrams(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb, ah := udPairOf(t, a, b, func(i *verbs.QPInitAttr) { tsoInit(i); i.MaxTSOHeader = 64 })
		x := get(qa.Ex())(t)
		for _, frame := range [][]byte{
			eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2))),
			eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1, 2))),
		} {
			for _, length := range []int{0, 1, 600, 601, 2000} {
				a.fill(byte(length))
				want := segments(frame, a.buf[:length], 600)
				for i := range want {
					must(t, qb.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*2000, 2000)}}))
				}
				x.Start()
				x.WRID, x.WRFlags = 7, verbs.SendSignaled
				x.SendTSO(ipoib(frame), 600)
				x.SetUDAddr(ah, qb.QPN(), verbs.DefaultQKey)
				x.SetSGEList([]verbs.SGE{a.mr.SGE(0, length/3), a.mr.SGE(length/3, length-length/3)})
				must(t, x.Complete())
				if c := a.good(1)[0]; c.Opcode != verbs.WCTSO || c.WRID != 7 {
					t.Errorf("%+v", c)
				}
				for i, r := range b.good(len(want)) {
					got := b.buf[i*2000+40 : i*2000+int(r.ByteLen)]
					k := slices.IndexFunc(want, func(w []byte) bool { return bytes.Equal(got, ipoib(w)) })
					if k < 0 {
						t.Errorf("%d bytes, datagram %d: % x\nis none of % x", length, i, got, want)
						continue
					}
					want = slices.Delete(want, k, k+1)
				}
			}
		}
	})
}

// TestV_WR_19_SegmentsAreReadByWireshark: an independent implementation finds the checksums, lengths and sequence
// numbers of the datagrams of a TSO request right, and in each of them the data of one TCP segment.
func TestV_WR_19_SegmentsAreReadByWireshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("this test needs tshark")
	}
	file := filepath.Join(t.TempDir(), "tso.pcapng")
	t.Setenv("VERBENA_PCAP", file)
	t.Run("traffic", func(t *testing.T) { sendSegments(t, 2000, 600) })
	text := string(get(exec.Command(tshark, "-r", file, "-Y", "tcp && frame.packet_flags_direction == 2",
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-T", "fields", "-E", "occurrence=l",
		"-e", "ip.checksum.status", "-e", "tcp.checksum.status", "-e", "tcp.seq_raw", "-e", "tcp.len", "-e", "tcp.flags",
	).Output())(t))
	// Checksums of IP and TCP: 1 is right.
	want := "1\t1\t256\t600\t0x0010\n1\t1\t856\t600\t0x0010\n1\t1\t1456\t600\t0x0010\n1\t1\t2056\t200\t0x0018\n"
	if want += want; text != want { // IPv4, then IPv6
		t.Errorf("tshark reads\n%swant\n%s", text, want)
	}
}

// sendSegments sends TSO requests with the data of IPv4 and IPv6 segments, and closes the devices.
func sendSegments(t *testing.T, length int, mss uint16) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	qa, qb, ah := udPairOf(t, a, b, func(i *verbs.QPInitAttr) { tsoInit(i); i.MaxTSOHeader = 64 })
	x := get(qa.Ex())(t)
	for i := range 20 {
		must(t, qb.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*2000, 2000)}}))
	}
	a.fill(1)
	for _, frame := range [][]byte{
		eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2))),
		eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1, 2))),
	} {
		x.Start()
		x.WRFlags = verbs.SendSignaled
		x.SendTSO(ipoib(frame), mss)
		x.SetUDAddr(ah, qb.QPN(), verbs.DefaultQKey)
		x.SetSGEList([]verbs.SGE{a.mr.SGE(0, length)})
		must(t, x.Complete())
		a.good(1)
		b.good((length + int(mss) - 1) / int(mss))
	}
}

// segments makes the frames in which a TCP segment of much data is sent. The header of the frame is that of tcpOf.
func segments(frame, data []byte, mss int) (all [][]byte) {
	l4 := len(frame) - 20
	for at := 0; at == 0 || at < len(data); at += mss {
		n := min(mss, len(data)-at)
		f := cat(frame, data[at:at+n])
		if f[14]>>4 == 4 {
			copy(f[16:], be16(len(f)-14))
			copy(f[18:], be16(7+len(all)))
		} else {
			copy(f[18:], be16(len(f)-54))
		}
		binary.BigEndian.PutUint32(f[l4+4:], uint32(0x100+at))
		if at+n < len(data) {
			f[l4+13] &^= 0x08 // PSH
		}
		all = append(all, summed(f))
	}
	return all
}

// TestV_WR_19_BadSegments: requests that cannot be sent end with an error, and nothing of them is sent.
func TestV_WR_19_BadSegments(t *testing.T) {
	frame := ipoib(eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2))))
	for _, c := range []struct {
		name   string
		hdr    []byte
		mss    uint16
		status verbs.WCStatus
	}{
		{"half a TCP header", frame[:len(frame)-10], 100, verbs.WCLocQPOpErr},
		{"no header of IP over InfiniBand", frame[4:], 100, verbs.WCLocQPOpErr},
		{"UDP", ipoib(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))), 100, verbs.WCLocQPOpErr},
		{"two bytes", frame[:2], 100, verbs.WCLocQPOpErr},
		{"longer than a packet", frame, 65535, verbs.WCLocLenErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := newEnds(t, &networks[0], 2, nil)
			a, b := ends[0], ends[1]
			qa, qb, ah := udPairOf(t, a, b, tsoInit)
			must(t, qb.PostRecv(recv(b, 1, 2000)))
			must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRTSO, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, 100000)}, TSO: &verbs.TSO{Hdr: c.hdr, MSS: c.mss},
				AH: ah, RemoteQPN: qb.QPN(), RemoteQKey: verbs.DefaultQKey}))
			if wc := a.poll(1)[0]; wc.Status != c.status || qa.State() != verbs.QPSSQE {
				t.Errorf("%+v, QP %v", wc, qa.State())
			}
			if sent := counter(a.dev, "sent_pkts"); sent != 0 {
				t.Errorf("%d packets were sent", sent)
			}
		})
	}
}

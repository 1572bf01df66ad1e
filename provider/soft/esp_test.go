package soft_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// espCase is a mode of ESP and a frame for it.
type espCase struct {
	name  string
	flags verbs.FlowActionESPFlags
	key   int // bytes
	icv   uint32
	encap []verbs.FlowSpec
	frame []byte
	proto int // above the outer IP
}

var (
	tunnel4 = verbs.FlowSpecIPv4Ext{Val: verbs.FlowIPv4ExtFilter{SrcIP: [4]byte{192, 0, 2, 1},
		DstIP: [4]byte{192, 0, 2, 2}, TOS: 0x10, TTL: 9, Flags: 2}}
	tunnel6 = verbs.FlowSpecIPv6{Val: verbs.FlowIPv6Filter{SrcIP: netB, DstIP: netA, FlowLabel: 0x12345,
		TrafficClass: 7, HopLimit: 11}}
	inUDP = verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{SrcPort: 4500, DstPort: 4500}}
)

func espCases() []espCase {
	text := []byte("what must not be read on the wire")
	four := summed(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, text))))
	six := summed(eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1, 2, text))))
	tagged := cat(four[:12], be16(0x8100, 5), four[12:])
	const full, transport = verbs.FlowActionESPFullOffload, verbs.FlowActionESPTransport
	list := func(s ...verbs.FlowSpec) []verbs.FlowSpec { return s }
	return []espCase{
		{"tunnel, IPv4 in IPv4", full, 16, 16, list(tunnel4), four, 50},
		{"tunnel, IPv6 in IPv4", full, 24, 12, list(tunnel4), six, 50},
		{"tunnel, IPv4 in IPv6", full, 32, 8, list(tunnel6), tagged, 50},
		{"tunnel in UDP over IPv6", full, 16, 16, list(tunnel6, inUDP), six, 17},
		{"transport, IPv4", full | transport, 16, 8, nil, four, 50},
		{"transport, IPv6", full | transport, 32, 16, nil, six, 50},
		{"transport in UDP", full | transport, 16, 12, list(inUDP), tagged, 17},
	}
}

const testSPI = 0x1234abcd

func (c *espCase) attr(encrypt bool) *verbs.FlowActionESPAttr {
	a := &verbs.FlowActionESPAttr{
		ESP: &verbs.FlowActionESP{SPI: testSPI, Flags: c.flags},
		KeyMat: &verbs.FlowActionESPKeyMat{IV: 0x1122334455667700, Salt: [4]byte{9, 8, 7, 6}, ICVLen: c.icv,
			Key: bytes.Repeat([]byte{0xc5}, c.key)},
		Encap: c.encap,
	}
	if encrypt {
		a.ESP.Flags |= verbs.FlowActionESPEncrypt
	} else {
		a.Replay = &verbs.FlowActionESPReplay{Proto: verbs.FlowActionESPReplayBMP, Size: 64}
	}
	return a
}

// action makes an action and a rule with it, EGRESS if it encrypts.
func (s *station) action(attr *verbs.FlowActionESPAttr, specs ...verbs.FlowSpec) *verbs.FlowAction {
	s.t.Helper()
	a := get(s.ctx.CreateFlowActionESP(attr))(s.t)
	s.t.Cleanup(func() { _ = a.Close() })
	rule := verbs.FlowAttr{Specs: append(specs, verbs.FlowSpecActionHandle{Action: a})}
	if attr.ESP.Flags&verbs.FlowActionESPEncrypt != 0 {
		rule.Flags = verbs.FlowEgress
	}
	s.rule(rule)
	return a
}

// espStations makes a sender, a receiver and a station that receives what is on the wire.
func espStations(t *testing.T) (a, b, wire *station) {
	_, s := fabricOf(t, 3, nil)
	matchAll(s[2])
	return s[0], s[1], s[2]
}

// onWire returns the frame that the station has received, and posts a receive.
func (s *station) onWire() []byte {
	s.t.Helper()
	got, _ := s.got()
	got = bytes.Clone(got)
	s.post(s.qp, 0, 1)
	return got
}

// TestV_FL_14_ESPFullOffload: an EGRESS rule makes ESP packets, which the rule of the receiver makes what they were.
func TestV_FL_14_ESPFullOffload(t *testing.T) {
	for _, c := range espCases() {
		t.Run(c.name, func(t *testing.T) {
			a, b, wire := espStations(t)
			a.action(c.attr(true))
			b.action(c.attr(false))
			wire.post(wire.qp, 0, 1)
			for i := range 5 {
				b.post(b.qp, i, 1)
				a.send(c.frame)
				out := wire.onWire()
				if bytes.Contains(out, []byte("must not be read")) {
					t.Fatalf("the text is on the wire: % x", out)
				}
				at := bytes.Index(out, binary.BigEndian.AppendUint32(nil, testSPI))
				if at < 0 || binary.BigEndian.Uint32(out[at+4:]) != uint32(i+1) ||
					binary.BigEndian.Uint64(out[at+8:]) != 0x1122334455667700+uint64(i) {
					t.Fatalf("packet %d: SPI, sequence number or IV: % x", i, out)
				}
				if got, wc := b.got(); !bytes.Equal(got, c.frame) || wc.WCFlags&verbs.WCIPCsumOK !=
					map[bool]verbs.WCFlags{true: verbs.WCIPCsumOK}[!bytes.Contains(c.frame, netA[:])] {
					t.Fatalf("packet %d: % x, %v\nwant % x", i, got, wc.WCFlags, c.frame)
				}
			}
		})
	}
}

// TestESPIsReadByWireshark: an independent implementation decrypts the packets.
func TestESPIsReadByWireshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("this test needs tshark")
	}
	var frames [][]byte
	args := []string{"-o", "esp.enable_encryption_decode:TRUE", "-T", "fields", "-e", "udp.payload", "-e", "tcp.payload"}
	for i, c := range espCases() {
		a, _, wire := espStations(t)
		wire.post(wire.qp, 0, 1)
		attr := c.attr(true)
		attr.ESP.SPI += uint32(i)
		a.action(attr)
		a.send(c.frame)
		out := wire.onWire()
		frames = append(frames, out)
		version := "IPv4"
		if out[14]>>4 == 6 || out[18]>>4 == 6 {
			version = "IPv6"
		}
		args = append(args, "-o", fmt.Sprintf(`uat:esp_sa:"%s","*","*","0x%x","AES-GCM with %d octet ICV [RFC4106]",`+
			`"0x%s09080706","NULL","","32-bit"`, version, testSPI+i, c.icv, strings.Repeat("c5", c.key)))
	}
	file := filepath.Join(t.TempDir(), "esp.pcap")
	must(t, os.WriteFile(file, pcapOf(frames), 0o600))
	text, err := exec.Command(tshark, append([]string{"-r", file}, args...)...).CombinedOutput()
	if err != nil && bytes.Contains(text, []byte("uat")) {
		t.Skipf("this tshark has other preferences: %s", text)
	}
	clear := []byte(hex.EncodeToString([]byte("what must not be read on the wire")))
	if n := bytes.Count(text, clear); err != nil || n != len(frames) {
		t.Errorf("%d of %d packets were decrypted: %v: %s", n, len(frames), err, text)
	}
}

// pcapOf makes a capture file.
func pcapOf(frames [][]byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 2, 0, 4, 0)
	for _, v := range []uint32{0, 0, 65535, 1} {
		b = le.AppendUint32(b, v)
	}
	for _, f := range frames {
		for _, v := range []uint32{0, 0, uint32(len(f)), uint32(len(f))} {
			b = le.AppendUint32(b, v)
		}
		b = append(b, f...)
	}
	return b
}

// TestV_FL_14_ESPReplayAndForgery: packets that were received before, older ones and changed ones are dropped.
func TestV_FL_14_ESPReplayAndForgery(t *testing.T) {
	for _, c := range espCases() {
		a, b, wire := espStations(t)
		act := b.action(c.attr(false))
		a.action(c.attr(true))
		wire.post(wire.qp, 0, 1)
		packet := func() []byte {
			a.send(c.frame)
			return wire.onWire()
		}
		b.post(b.qp, 0, 30)
		first := packet()
		b.got()
		wire.send(first)
		if wc := b.next(); wc != nil {
			t.Fatalf("%s: a packet was received twice", c.name)
		}
		wire.send(with(first, len(first)-1)) // a forged packet does not move the window
		late := packet()
		b.got()
		wire.send(late, first)
		if wc := b.next(); wc != nil {
			t.Fatalf("%s: a packet was received twice", c.name)
		}
		// Without protection all of them are accepted.
		must(t, act.ModifyESP(&verbs.FlowActionESPAttr{Replay: &verbs.FlowActionESPReplay{}}))
		wire.send(late, late)
		b.got()
		b.got()
		// Each byte of the ESP packet counts.
		must(t, act.ModifyESP(&verbs.FlowActionESPAttr{ESP: &verbs.FlowActionESP{SPI: testSPI, Flags: c.flags}}))
		at := bytes.Index(first, binary.BigEndian.AppendUint32(nil, testSPI))
		for i := at; i < len(first); i++ {
			wire.send(with(first, i))
			if wc := b.next(); wc != nil {
				t.Fatalf("%s: received with byte %d of %d changed", c.name, i-at, len(first)-at)
			}
		}
		wire.send(first)
		b.got()
	}
}

// TestV_FL_14_ESPWindow: within the window packets may be reordered, and each is received once.
func TestV_FL_14_ESPWindow(t *testing.T) {
	a, b, wire := espStations(t)
	c := espCases()[0]
	a.action(c.attr(true))
	wire.post(wire.qp, 0, 1)
	var sent [][]byte
	for range 100 {
		a.send(c.frame)
		sent = append(sent, wire.onWire())
	}
	b.action(c.attr(false))
	for _, step := range []struct {
		n    int // number of the packet, from 1
		want bool
	}{{5, true}, {5, false}, {1, true}, {90, true}, {27, true}, {26, false}, {27, false}, {89, true}, {90, false},
		{100, true}, {36, false}, {37, true}} {
		b.post(b.qp, 0, 1)
		wire.send(sent[step.n-1])
		if got := b.next() != nil; got != step.want {
			t.Errorf("packet %d: received %v, want %v", step.n, got, step.want)
		}
		reset(t, b.qp)
	}
}

// TestV_FL_14_ESPExtendedSequenceNumbers: the high half is authenticated but not sent, and counts up.
func TestV_FL_14_ESPExtendedSequenceNumbers(t *testing.T) {
	a, b, wire := espStations(t)
	c := espCases()[0]
	esn, other := uint32(5), uint32(6)
	out, in := c.attr(true), c.attr(false)
	out.ESN, in.ESN = &esn, &esn
	out.ESP.Seq, in.ESP.Seq = 1<<32-3, 1<<32-4
	a.action(out)
	dec := b.action(in)
	wire.post(wire.qp, 0, 1)
	b.post(b.qp, 0, 20)
	var last []byte
	for range 5 {
		a.send(c.frame)
		last = wire.onWire()
		b.got()
	}
	if at := bytes.Index(last, binary.BigEndian.AppendUint32(nil, testSPI)); binary.BigEndian.Uint32(last[at+4:]) != 2 {
		t.Errorf("the last sequence number: % x", last[at:at+8])
	}
	// The high half is 6 now.
	must(t, dec.ModifyESP(&verbs.FlowActionESPAttr{ESN: &esn, ESP: &verbs.FlowActionESP{SPI: testSPI, Flags: c.flags}}))
	wire.send(last)
	b.nothing()
	must(t, dec.ModifyESP(&verbs.FlowActionESPAttr{ESN: &other, ESP: &verbs.FlowActionESP{SPI: testSPI, Flags: c.flags}}))
	wire.send(last)
	b.got()
}

// TestV_FL_14_ESPLimits: after HardLimitPkts, or the last sequence number, nothing is sent.
func TestV_FL_14_ESPLimits(t *testing.T) {
	for _, c := range []verbs.FlowActionESP{{HardLimitPkts: 3}, {Seq: 1<<32 - 4}} {
		a, _, wire := espStations(t)
		e := espCases()[0]
		attr := e.attr(true)
		attr.ESP.HardLimitPkts, attr.ESP.Seq = c.HardLimitPkts, c.Seq
		a.action(attr)
		wire.post(wire.qp, 0, 10)
		for range 5 {
			a.send(e.frame)
		}
		n := 0
		for wire.next() != nil {
			n++
		}
		if n != 3 {
			t.Errorf("%+v: %d packets were sent, want 3", c, n)
		}
	}
}

// TestV_FL_14_ESPTrafficFlowPadding hides the length of a packet and is removed.
func TestV_FL_14_ESPTrafficFlowPadding(t *testing.T) {
	a, b, wire := espStations(t)
	c := espCases()[1]
	attr := c.attr(true)
	attr.ESP.TFCPad = 300
	a.action(attr)
	b.action(c.attr(false))
	wire.post(wire.qp, 0, 1)
	b.post(b.qp, 0, 1)
	a.send(c.frame)
	if out := wire.onWire(); len(out) < len(c.frame)+300 {
		t.Errorf("%d bytes on the wire", len(out))
	}
	if got, _ := b.got(); !bytes.Equal(got, c.frame) {
		t.Errorf("% x", got)
	}
}

// TestV_FL_14_ESPInline: the program makes the ESP header, the action encrypts and decrypts behind it.
func TestV_FL_14_ESPInline(t *testing.T) {
	inner := summed(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, []byte("inline")))))[14:]
	specs := []verbs.FlowSpec{verbs.FlowSpecIPv4{}, verbs.FlowSpecESP{
		Val: verbs.FlowESPFilter{SPI: testSPI}, Mask: verbs.FlowESPFilter{SPI: 0xffffffff}}}
	packet := func(seq uint32) []byte {
		return eth(macB, macA, 0x0800, ip4(50, hostA, hostB, binary.BigEndian.AppendUint32(be16(0x1234, 0xabcd), seq),
			make([]byte, 8), inner))
	}
	attr := func(encrypt bool, esn *uint32, flags verbs.FlowActionESPFlags) *verbs.FlowActionESPAttr {
		c := espCase{flags: flags, key: 16, icv: 16}
		out := c.attr(encrypt)
		out.ESP.SPI, out.Replay, out.ESN = 0, nil, esn
		return out
	}
	four, five := uint32(4), uint32(5)
	const window = verbs.FlowActionESPESNNewWindow
	for _, c := range []struct {
		out, in           *uint32
		outFlags, inFlags verbs.FlowActionESPFlags
		seq               uint32
		good              bool
	}{
		{nil, nil, 0, 0, 7, true},
		{&four, &four, 0, 0, 7, true},
		{&four, &five, 0, 0, 7, false},
		{&four, nil, 0, 0, 7, false},
		{&five, &four, 0, window, 7, true},          // low numbers are of the next scope
		{&four, &four, 0, window, 1 << 31, true},    // high ones of this one
		{&four, &four, 0, window, 1<<31 - 1, false}, // of the next, but sent as of this one
		{&four, &five, window, 0, 9, true},
	} {
		a, b, wire := espStations(t)
		a.action(attr(true, c.out, c.outFlags), specs...)
		b.action(attr(false, c.in, c.inFlags), specs...)
		wire.post(wire.qp, 0, 1)
		b.post(b.qp, 0, 2)
		a.send(packet(c.seq))
		out := wire.onWire()
		if bytes.Contains(out, []byte("inline")) || !bytes.Equal(out[34:42], packet(c.seq)[34:42]) {
			t.Fatalf("on the wire: % x", out)
		}
		iv := bytes.Clone(out[42:50])
		wc := b.next()
		if (wc != nil) != c.good {
			t.Errorf("%+v: received %v", c, wc != nil)
		}
		if wc != nil {
			got := bytes.Clone(b.buf[:wc.ByteLen])
			if !bytes.Equal(got[42:50], iv) {
				t.Errorf("the IV: % x", got[42:50])
			}
			copy(got[42:50], make([]byte, 8))
			if !bytes.Equal(got, summed(packet(c.seq))) {
				t.Errorf("% x\nwant % x", got, packet(c.seq))
			}
		}
		a.send(packet(c.seq))
		if again := wire.onWire(); bytes.Equal(again[42:50], iv) {
			t.Error("an IV was used twice")
		}
	}
}

// TestV_FL_14_V_FL_05_RulesAfterESP: the rules after one with DONT_TRAP see the decrypted frame.
func TestV_FL_14_V_FL_05_RulesAfterESP(t *testing.T) {
	a, b, _ := espStations(t)
	c := espCases()[4] // transport, IPv4, UDP port 2
	a.action(c.attr(true))
	act := get(b.ctx.CreateFlowActionESP(c.attr(false)))(t)
	tag := func(n uint32, more ...verbs.FlowSpec) []verbs.FlowSpec {
		return append(more, verbs.FlowSpecActionTag{TagID: n})
	}
	first := b.rule(verbs.FlowAttr{Priority: 1, Flags: verbs.FlowDontTrap, Specs: tag(1, verbs.FlowSpecESP{},
		verbs.FlowSpecActionHandle{Action: act})})
	b.rule(verbs.FlowAttr{Priority: 2, Specs: tag(2, verbs.FlowSpecESP{})})
	b.rule(verbs.FlowAttr{Priority: 3, Specs: tag(3, verbs.FlowSpecUDP{
		Val: verbs.FlowPortFilter{DstPort: 2}, Mask: verbs.FlowPortFilter{DstPort: 0xffff}})})
	b.post(b.qp, 0, 4)
	a.send(c.frame)
	for _, want := range []uint32{1, 3} {
		if got, wc := b.got(); !bytes.Equal(got, c.frame) || wc.FlowTag != want {
			t.Errorf("rule %d, want %d: % x", wc.FlowTag, want, got)
		}
	}
	b.nothing()
	if err := act.Close(); !errors.Is(err, verbs.EBUSY) {
		t.Errorf("destroy_flow_action with a rule: %v", err)
	}
	must(t, first.Close())
	must(t, act.Close())
	if err := act.Close(); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a second destroy_flow_action: %v", err)
	}
}

// TestV_FL_14_ESPModify: a new key is in use from the next packet on, for all rules; a refused change has no effect.
func TestV_FL_14_ESPModify(t *testing.T) {
	a, b, wire := espStations(t)
	c := espCases()[0]
	enc, dec := a.action(c.attr(true)), b.action(c.attr(false))
	wire.post(wire.qp, 0, 1)
	b.post(b.qp, 0, 20)
	a.send(c.frame)
	before := wire.onWire()
	b.got()
	key := &verbs.FlowActionESPKeyMat{Salt: [4]byte{1}, ICVLen: 16, Key: make([]byte, 32)}
	must(t, enc.ModifyESP(&verbs.FlowActionESPAttr{KeyMat: key}))
	a.send(c.frame)
	wire.onWire()
	b.nothing() // with the old key
	for _, bad := range []*verbs.FlowActionESPAttr{
		nil,
		{ESP: &verbs.FlowActionESP{SPI: testSPI, Flags: c.flags | verbs.FlowActionESPEncrypt}},
		{KeyMat: &verbs.FlowActionESPKeyMat{ICVLen: 16, Key: make([]byte, 15)}},
		{Replay: &verbs.FlowActionESPReplay{Proto: verbs.FlowActionESPReplayBMP, Size: 4097}},
		{Encap: []verbs.FlowSpec{inUDP}},
	} {
		if err := dec.ModifyESP(bad); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	must(t, dec.ModifyESP(&verbs.FlowActionESPAttr{KeyMat: key}))
	a.send(c.frame)
	after := wire.onWire()
	if got, _ := b.got(); !bytes.Equal(got, c.frame) {
		t.Errorf("% x", got)
	}
	// The IVs of a key that is set again continue.
	must(t, enc.ModifyESP(&verbs.FlowActionESPAttr{KeyMat: key}))
	a.send(c.frame)
	again := wire.onWire()
	at := bytes.Index(before, binary.BigEndian.AppendUint32(nil, testSPI)) + 8
	if n := binary.BigEndian.Uint64(after[at:]); n != 1 || binary.BigEndian.Uint64(again[at:]) != 2 {
		t.Errorf("IVs % x and % x: want 1 and 2", after[at:at+8], again[at:at+8])
	}
}

// TestESPOfMalformedFrames: frames that an action cannot change are dropped.
func TestESPOfMalformedFrames(t *testing.T) {
	for _, c := range espCases() {
		a, b, wire := espStations(t)
		a.action(c.attr(true))
		b.action(c.attr(false))
		wire.post(wire.qp, 0, 8)
		b.post(b.qp, 0, 30)
		for _, frame := range [][]byte{
			eth(macB, macA, 0x88b5, make([]byte, 46)),
			eth(macB, macA, 0x0800, make([]byte, 46)),
			c.frame[:len(c.frame)-1],
			c.frame[:14],
		} {
			a.send(frame)
			wire.nothing()
			wire.send(frame)
			b.nothing()
		}
		for n := range 60 { // ESP packets of every length
			wire.send(eth(macB, macA, 0x0800, ip4(50, hostA, hostB, binary.BigEndian.AppendUint32(nil, testSPI),
				make([]byte, n))), eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(4500, 4500,
				binary.BigEndian.AppendUint32(nil, testSPI), make([]byte, n)))))
			b.nothing()
		}
		for wire.next() != nil {
		}
	}
}

func TestESPAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, c := range espCases() {
		_, s := fabricOf(t, 2, nil)
		a, b := s[0], s[1]
		a.action(c.attr(true))
		b.action(c.attr(false))
		copy(a.buf, c.frame)
		wr := verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, len(c.frame))}}
		recv := verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, slotLen)}}
		var wcs [4]verbs.WC
		n := testing.AllocsPerRun(100, func() {
			must(t, b.qp.PostRecv(recv))
			must(t, a.qp.PostSend(wr))
			if n, err := a.cq.Poll(wcs[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if n, err := b.cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].Status != verbs.WCSuccess {
				t.Fatal(n, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations for a packet", c.name, n)
		}
	}
}

package iwarp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// victim is a server that bare sockets connect to, and a connection beside them that must not notice.
type victim struct {
	t                *testing.T
	l                *rdmacm.ID
	ch               *rdmacm.EventChannel
	client, bystands *end
}

func newVictim(t *testing.T) *victim {
	v := &victim{t: t}
	v.client, v.bystands = connect(t)
	v.l, v.ch = listen(t, newHost(t))
	return v
}

// healthy exchanges a message over the connection beside.
func (v *victim) healthy() {
	v.t.Helper()
	v.bystands.recv(1, 0, 8)
	must(v.t, v.client.QP().PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: v.client.sge(0, 8)}))
	for _, wc := range []verbs.WC{v.bystands.wait(v.bystands.RecvCQ()), v.client.wait(v.client.SendCQ())} {
		if wc.Status != verbs.WCSuccess {
			v.t.Fatalf("the connection beside: %+v", wc)
		}
	}
}

// attacker is a bare socket with an established connection to a server, which has two receives of 20 bytes.
type attacker struct {
	*net.TCPConn
	*end
	crc            bool
	quiet, foreign *verbs.MR // regions that the peer may not use
}

// keys are what an attacker knows of the server.
type keys struct {
	base                 uint64
	good, quiet, foreign uint32
}

const attackedLen = 1000 // bytes of the region that it may use

// attack connects a bare socket. The server of it answers one READ at a time.
func (v *victim) attack(crc bool) *attacker {
	t := v.t
	t.Helper()
	a := &attacker{crc: crc}
	var err error
	a.TCPConn, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(v.l.LocalAddr()))
	must(t, err)
	t.Cleanup(func() { _ = a.TCPConn.Close() })
	must(t, a.TCPConn.SetDeadline(time.Now().Add(time.Minute)))
	flags := byte(0)
	if crc {
		flags = 0x40
	}
	_, err = a.Write(frameOf("MPA ID Req Frame", flags))
	must(t, err)
	ev := event(t, v.ch, rdmacm.EventConnectRequest)
	id := ev.ID
	must(t, ev.Ack())
	must(t, id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 4, MaxSendSGE: 1,
		MaxRecvSGE: 2}, SigAll: true}))
	pd, err := id.Verbs().AllocPD()
	must(t, err)
	a.end = &end{ID: id, t: t, ch: v.ch, mem: make([]byte, attackedLen+200)}
	region := func(pd *verbs.PD, from, n int, access verbs.AccessFlags) *verbs.MR {
		mr, err := pd.RegMR(a.mem[from:from+n], access)
		must(t, err)
		return mr
	}
	const all = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	a.mr = region(id.PD(), 0, attackedLen, all)
	a.quiet = region(id.PD(), attackedLen, 100, verbs.AccessLocalWrite)
	a.foreign = region(pd, attackedLen+100, 100, all)
	t.Cleanup(func() {
		must(t, id.DestroyQP())
		for _, mr := range []*verbs.MR{a.mr, a.quiet, a.foreign} {
			must(t, mr.Close())
		}
		must(t, pd.Close())
		must(t, id.Close())
	})
	must(t, id.QP().PostRecv(verbs.RecvWR{WRID: 1, SGList: append(a.sge(900, 10), a.sge(910, 10)...)},
		verbs.RecvWR{WRID: 2, SGList: a.sge(920, 10)}))
	must(t, id.Accept(t.Context(), &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1}))
	must(t, event(t, v.ch, rdmacm.EventEstablished).Ack())
	_, err = io.ReadFull(a.TCPConn, make([]byte, 24))
	must(t, err)
	return a
}

func (a *attacker) keys() keys {
	return keys{a.mr.Addr(), a.mr.RKey(), a.quiet.RKey(), a.foreign.RKey()}
}

// frame makes an FPDU of a segment.
func (a *attacker) frame(seg []byte) []byte {
	b := fpdu(seg)
	if a.crc {
		n := len(b) - 4
		binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}

// push sends bytes one by one, or all at once. The server may have closed the connection meanwhile.
func (a *attacker) push(b []byte, single bool) {
	if !single {
		_, _ = a.TCPConn.Write(b)
		return
	}
	for i := range b {
		if _, err := a.TCPConn.Write(b[i : i+1]); err != nil {
			return
		}
		runtime.Gosched()
	}
}

// rest reads what the server still sends up to the end of the stream, as segments.
func (a *attacker) rest() (segs [][]byte) {
	all, err := io.ReadAll(a.TCPConn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		a.t.Errorf("the server does not end the stream: %v", err)
	}
	for len(all) >= 2 {
		n := int(binary.BigEndian.Uint16(all))
		whole := (n+2+3)&^3 + 4
		if len(all) < whole {
			break
		}
		segs, all = append(segs, all[2:2+n]), all[whole:]
	}
	if len(all) > 0 {
		a.t.Errorf("the server ends the stream within an FPDU: % x", all)
	}
	return segs
}

func taggedSeg(ddp, rdmap byte, stag uint32, to uint64, n int) []byte {
	b := binary.BigEndian.AppendUint32([]byte{ddp, rdmap}, stag)
	b = binary.BigEndian.AppendUint64(b, to)
	return append(b, bytes.Repeat([]byte{0xEE}, n)...)
}

func readOf(msn, mo uint32, stag uint32, to uint64, n uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, n)
	b = binary.BigEndian.AppendUint32(b, stag)
	b = binary.BigEndian.AppendUint64(b, to)
	return untagged(lastUntagged, 0x41, 1, msn, mo, b...)
}

func atomicOf(op uint32, stag uint32, to uint64, mask uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, op)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, stag)
	for _, v := range []uint64{to, 1, mask, 0, 0} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return untagged(lastUntagged, 0x4A, 1, 1, 0, b...)
}

// badStream is what a peer must not send. All segments but the last are good.
type badStream struct {
	name string
	segs func(k keys) [][]byte
	code uint16 // layer, type and code of the Terminate
}

// The codes are those of RFC 5040, 4.8, RFC 5041, 7.2, and RFC 5044, 8.
func badStreams() []badStream {
	one := func(seg func(k keys) []byte) func(keys) [][]byte {
		return func(k keys) [][]byte { return [][]byte{seg(k)} }
	}
	raw := func(b []byte) func(keys) [][]byte { return func(keys) [][]byte { return [][]byte{b} } }
	write := func(stag func(k keys) uint32, off uint64, n int) func(keys) [][]byte {
		return one(func(k keys) []byte { return taggedSeg(lastTagged, opWrite, stag(k), k.base+off, n) })
	}
	read := func(stag func(k keys) uint32, off uint64, n uint32) func(keys) [][]byte {
		return one(func(k keys) []byte { return readOf(1, 0, stag(k), k.base+off, n) })
	}
	good, quiet := func(k keys) uint32 { return k.good }, func(k keys) uint32 { return k.quiet }
	foreign, none := func(k keys) uint32 { return k.foreign }, func(keys) uint32 { return 0xDEAD00 }
	send := func(ddp, rdmap byte, queue, msn, mo uint32, n int) []byte {
		return untagged(ddp, rdmap, queue, msn, mo, make([]byte, n)...)
	}
	two := func(x, y []byte) func(keys) [][]byte { return func(keys) [][]byte { return [][]byte{x, y} } }
	const more = 0x01 // not the last segment
	return []badStream{
		{"write, unknown STag", write(none, 0, 5), 0x1100},
		{"write, before the region", write(good, ^uint64(0), 5), 0x1101},
		{"write, behind the region", write(good, attackedLen-4, 5), 0x1101},
		{"write, offset wraps", one(func(k keys) []byte { return taggedSeg(lastTagged, opWrite, k.good, ^uint64(2), 5) }),
			0x1103},
		{"write, other domain", write(foreign, attackedLen+100, 5), 0x1102},
		{"write, no right", write(quiet, attackedLen, 5), 0x0102},
		{"write, the second segment is bad", func(k keys) [][]byte {
			return [][]byte{taggedSeg(0x81, opWrite, k.good, k.base, 0), taggedSeg(lastTagged, opWrite, k.good,
				k.base+attackedLen, 1)}
		}, 0x1101},
		{"read, unknown STag", read(none, 0, 5), 0x0100},
		{"read, behind the region", read(good, attackedLen-4, 5), 0x0101},
		{"read, 4 GiB", read(good, 0, ^uint32(0)), 0x0101},
		{"read, offset wraps", one(func(k keys) []byte { return readOf(1, 0, k.good, ^uint64(0), 2) }), 0x0104},
		{"read, other domain", read(foreign, attackedLen+100, 5), 0x0103},
		{"read, no right", read(quiet, attackedLen, 5), 0x0102},
		{"read, too short", raw(send(lastUntagged, 0x41, 1, 1, 0, 27)), 0x02FF},
		{"read, too long", raw(send(lastUntagged, 0x41, 1, 1, 0, 29)), 0x1205},
		{"read, not the last segment", raw(send(more, 0x41, 1, 1, 0, 28)), 0x02FF},
		{"read, offset", raw(send(lastUntagged, 0x41, 1, 1, 4, 28)), 0x1204},
		{"read, number 0", raw(send(lastUntagged, 0x41, 1, 0, 0, 28)), 0x1203},
		{"read, number 2", raw(send(lastUntagged, 0x41, 1, 2, 0, 28)), 0x1203},
		{"read in queue 0", raw(send(lastUntagged, 0x41, 0, 1, 0, 28)), 0x1201},
		{"atomic, unknown STag", one(func(k keys) []byte { return atomicOf(0, 0xDEAD00, k.base, 0) }), 0x0100},
		{"atomic, not aligned", one(func(k keys) []byte { return atomicOf(0, k.good, k.base+4, 0) }), 0x02FF},
		{"atomic, mask", one(func(k keys) []byte { return atomicOf(0, k.good, k.base, 1) }), 0x02FF},
		{"atomic, operation 1", one(func(k keys) []byte { return atomicOf(1, k.good, k.base, 0) }), 0x02FF},
		{"atomic, no right", one(func(k keys) []byte { return atomicOf(0, k.quiet, k.base+attackedLen, 0) }), 0x0102},
		{"send, number 0", raw(send(lastUntagged, opSend, 0, 0, 0, 1)), 0x1203},
		{"send, number 2", raw(send(lastUntagged, opSend, 0, 2, 0, 1)), 0x1203},
		{"send, offset", raw(send(lastUntagged, opSend, 0, 1, 1, 1)), 0x1204},
		{"send, offset of the second segment", two(send(more, opSend, 0, 1, 0, 5), send(lastUntagged, opSend, 0, 1, 4, 1)),
			0x1204},
		{"send, too long", raw(send(lastUntagged, opSend, 0, 1, 0, 21)), 0x1205},
		{"send, much too long", raw(send(lastUntagged, opSend, 0, 1, 0, 20000)), 0x1205},
		{"send, too long in two segments", two(send(more, opSend, 0, 1, 0, 20), send(lastUntagged, opSend, 0, 1, 20, 1)),
			0x1205},
		{"send, no receive", func(keys) [][]byte {
			return [][]byte{send(lastUntagged, opSend, 0, 1, 0, 1), send(lastUntagged, opSend, 0, 2, 0, 1),
				send(lastUntagged, opSend, 0, 3, 0, 1)}
		}, 0x1202},
		{"send, other operation in between", two(send(more, opSend, 0, 1, 0, 5), send(lastUntagged, 0x45, 0, 1, 5, 0)),
			0x0206},
		{"send, nothing to invalidate", raw(send(lastUntagged, 0x44, 0, 1, 0, 0)), 0x0109},
		{"immediate, too short", raw(send(lastUntagged, 0x48, 0, 1, 0, 7)), 0x02FF},
		{"immediate, too long", raw(send(lastUntagged, 0x48, 0, 1, 0, 9)), 0x1205},
		{"response without READ", one(func(k keys) []byte { return taggedSeg(lastTagged, 0x42, k.good, k.base, 1) }), 0x0206},
		{"atomic response without atomic", raw(send(lastUntagged, 0x4B, 3, 1, 0, 12)), 0x0206},
		{"DDP version, tagged", one(func(k keys) []byte { return taggedSeg(0xC2, opWrite, k.good, k.base, 1) }), 0x1104},
		{"DDP version, untagged", raw(send(0x40, opSend, 0, 1, 0, 1)), 0x1206},
		{"RDMAP version", raw(send(lastUntagged, 0x83, 0, 1, 0, 1)), 0x0205},
		{"opcode 12", raw(send(lastUntagged, 0x4C, 0, 1, 0, 1)), 0x0206},
		{"opcode 15", raw(send(lastUntagged, 0x4F, 0, 1, 0, 1)), 0x0206},
		{"tagged send", one(func(k keys) []byte { return taggedSeg(lastTagged, opSend, k.good, k.base, 1) }), 0x0206},
		{"untagged write", raw(send(lastUntagged, opWrite, 0, 1, 0, 1)), 0x0206},
		{"send in queue 1", raw(send(lastUntagged, opSend, 1, 1, 0, 1)), 0x1201},
		{"queue 9", raw(send(lastUntagged, opSend, 9, 1, 0, 1)), 0x1201},
		{"terminate, number 2", raw(send(lastUntagged, 0x47, 2, 2, 0, 4)), 0x1203},
		{"terminate, offset", raw(send(lastUntagged, 0x47, 2, 1, 1, 4)), 0x1204},
		{"length 0", raw(nil), 0x2003},
		{"length 13", raw(make([]byte, 13)), 0x2003},
		{"length 64769", raw(make([]byte, 64769)), 0x2003},
		{"length 65535", raw(make([]byte, 65535)), 0x2003},
		{"untagged segment of 17 bytes", raw(send(lastUntagged, opSend, 0, 1, 0, 0)[:17]), 0x2003},
	}
}

// Each malformed stream over a real socket, with and without CRCs, at once and byte by byte: the server sends one
// Terminate with the right code and closes the connection; no byte of its memory changes but those of good segments;
// what it has posted is flushed; the connection beside it works.
func TestI_TERM_01_I_TERM_02_I_TERM_03_BadStreams(t *testing.T) {
	for _, crc := range []bool{false, true} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprintf("crc=%v/single=%v", crc, single), func(t *testing.T) {
				v := newVictim(t)
				for _, b := range badStreams() {
					k := keys{}
					if n := len(slices.Concat(b.segs(k)...)); single && n > 1000 {
						continue // what comes after the header does not matter
					}
					v.refuses(b, crc, single)
					if t.Failed() {
						t.Fatalf("in %q", b.name)
					}
				}
			})
		}
	}
}

func (v *victim) refuses(b badStream, crc, single bool) {
	t := v.t
	t.Helper()
	a := v.attack(crc)
	before := bytes.Clone(a.mem)
	segs := b.segs(a.keys())
	var stream []byte
	for _, seg := range segs {
		stream = append(stream, a.frame(seg)...)
	}
	a.push(stream, single)
	got := a.rest()
	if len(got) != 1 || len(got[0]) < 22 || !bytes.HasPrefix(got[0], []byte{0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1,
		0, 0, 0, 0}) {
		t.Fatalf("the server sends % x, want one Terminate", got)
	}
	term := got[0][18:]
	if code := binary.BigEndian.Uint16(term); code != b.code {
		t.Errorf("the Terminate has %04x, want %04x", code, b.code)
	}
	last := segs[len(segs)-1]
	if named := term[2]&0xC0 == 0xC0; named != (b.code>>12 < 2) {
		t.Errorf("the Terminate has the flags %02x", term[2])
	} else if named && (int(binary.BigEndian.Uint16(term[4:])) != len(last) || !bytes.Equal(term[6:10], last[:4])) {
		t.Errorf("the Terminate names % x", term[4:])
	}
	if i := bytes.IndexByte(a.mem, 0xEE); i >= 0 {
		t.Errorf("byte %d was written", i)
	}
	if len(segs) == 1 && b.code != 0x1205 && !bytes.Equal(before, a.mem) {
		t.Error("memory was changed")
	}
	_ = a.TCPConn.Close()
	ev := verbs.EventQPReqErr
	if t := b.code >> 8; t == 0x01 || t == 0x11 {
		ev = verbs.EventQPAccessErr
	}
	asyncEvent(t, a.Verbs(), ev)
	must(t, event(t, a.ch, rdmacm.EventDisconnected).Ack())
	if a.QP().State() != verbs.QPSErr {
		t.Errorf("the QP is in %v", a.QP().State())
	}
	for range 2 {
		if wc := a.wait(a.RecvCQ()); wc.Status == verbs.WCSuccess && len(segs) == 1 {
			t.Errorf("a receive completes: %+v", wc)
		}
	}
	v.healthy()
}

// A damaged FPDU has no effect: the CRC is checked before anything else.
func TestI_MPA_13_DamagedFPDUOverASocket(t *testing.T) {
	v := newVictim(t)
	for at := 2; at < 24; at++ {
		a := v.attack(true)
		k := a.keys()
		b := a.frame(taggedSeg(lastTagged, opWrite, k.good, k.base, 8))
		b[at] ^= 0x10
		a.push(b, at%2 == 0)
		got := a.rest()
		if len(got) != 1 || binary.BigEndian.Uint16(got[0][18:]) != 0x2002 {
			t.Fatalf("byte %d is wrong: the server sends % x", at, got)
		}
		if !bytes.Equal(a.mem, make([]byte, len(a.mem))) {
			t.Fatalf("byte %d is wrong: memory was changed", at)
		}
		_ = a.TCPConn.Close()
		must(t, event(t, a.ch, rdmacm.EventDisconnected).Ack())
	}
	v.healthy()
}

// A stream is the same wherever it is split: here it pauses at each byte.
func TestI_MPA_15_StreamSplitAtEachByte(t *testing.T) {
	v := newVictim(t)
	for _, crc := range []bool{false, true} {
		total := 0
		for at := 1; at == 1 || at < total; at++ {
			a := v.attack(crc)
			k := a.keys()
			stream := slices.Concat(
				a.frame(taggedSeg(lastTagged, opWrite, k.good, k.base, 5)),
				a.frame(untagged(lastUntagged, opSend, 0, 1, 0, 1, 2, 3)),
				a.frame(readOf(1, 0, k.good, k.base, 5)))
			total = len(stream)
			a.push(stream[:at], false)
			time.Sleep(100 * time.Microsecond)
			a.push(stream[at:], false)
			if wc := a.wait(a.RecvCQ()); wc.WRID != 1 || wc.Status != verbs.WCSuccess || wc.ByteLen != 3 {
				t.Fatalf("split at %d: %+v", at, wc)
			}
			if s := readSegment(t, a.TCPConn); !bytes.Equal(s[14:], a.mem[:5]) || s[14] != 0xEE || a.mem[902] != 3 {
				t.Fatalf("split at %d: the response is % x", at, s)
			}
			_ = a.TCPConn.Close()
			must(t, event(t, a.ch, rdmacm.EventDisconnected).Ack())
		}
	}
	v.healthy()
}

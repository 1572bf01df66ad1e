package iwarp_test

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// capture writes a TCP connection to a file. Each call of send is one packet.
type capture struct {
	t   *testing.T
	out bytes.Buffer
	w   *pcapgo.Writer
	seq [2]uint32
}

func newCapture(t *testing.T) *capture {
	c := &capture{t: t}
	c.w = pcapgo.NewWriter(&c.out)
	if err := c.w.WriteFileHeader(65536, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	c.packet(0, nil, func(h *layers.TCP) { h.SYN, h.ACK = true, false })
	c.seq[0]++
	c.packet(1, nil, func(h *layers.TCP) { h.SYN = true })
	c.seq[1]++
	return c
}

// send adds a packet of the initiator, 0, or the responder, 1.
func (c *capture) send(from int, data []byte) {
	c.packet(from, data, func(h *layers.TCP) { h.PSH = true })
	c.seq[from] += uint32(len(data))
}

func (c *capture) packet(from int, data []byte, set func(*layers.TCP)) {
	c.t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP,
		SrcIP: net.IPv4(10, 0, 0, byte(1+from)), DstIP: net.IPv4(10, 0, 0, byte(2-from))}
	ports := [2]layers.TCPPort{40000, 7174}
	tcp := &layers.TCP{SrcPort: ports[from], DstPort: ports[1-from], Seq: c.seq[from], Ack: c.seq[1-from], ACK: true,
		Window: 60000}
	set(tcp)
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		c.t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, ip, tcp, gopacket.Payload(data)); err != nil {
		c.t.Fatal(err)
	}
	info := gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(b.Bytes()), Length: len(b.Bytes())}
	if err := c.w.WritePacket(info, b.Bytes()); err != nil {
		c.t.Fatal(err)
	}
}

// dissect returns the fields of each packet of iWARP as tshark decodes them.
func (c *capture) dissect(fields ...string) []string {
	c.t.Helper()
	name := filepath.Join(c.t.TempDir(), "iwarp.pcap")
	if err := os.WriteFile(name, c.out.Bytes(), 0o600); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args := []string{"-r", name, "-Y", "iwarp_mpa", "-T", "fields", "-E", "separator=/s"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.CommandContext(ctx, "tshark", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("tshark: %v\n%s", err, errs.Bytes())
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func untagged(op iwarp.Opcode, inv, msn uint32, data []byte) []byte {
	b := make([]byte, iwarp.UntaggedLen, iwarp.UntaggedLen+len(data))
	iwarp.PutUntagged(b, op, true, inv, msn, 0)
	return append(b, data...)
}

// TestTshark has tshark, which knows nothing of this package, decode frames of every kind.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed (Debian package tshark)")
	}
	c := newCapture(t)
	q := iwarp.Start{CRC: true, Rev: iwarp.Rev1, Private: []byte("private")}
	a := iwarp.Start{Reply: true, CRC: true, Rev: iwarp.Rev1}
	c.send(0, q.Append(nil))
	c.send(1, a.Append(nil))
	var want []string
	send := func(seg []byte, fields string) {
		p := iwarp.FPDU(iwarp.AppendFPDU(nil, seg, true))
		c.send(0, p)
		crc := bits.ReverseBytes32(p.CRC()) // tshark shows its own CRC in the order of the bytes
		want = append(want, fmt.Sprintf("0x%08x %s", crc, fields))
	}
	write := make([]byte, iwarp.TaggedLen, 64)
	iwarp.PutTagged(write, iwarp.Write, false, 0x11, 0x22)
	send(append(write, "12345"...), "0 0x00000011 0x0000000000000022 0x00")
	msg := make([]byte, iwarp.ReadRequestLen)
	(&iwarp.Read{SinkSTag: 1, SinkTO: 2, Size: 3, SrcSTag: 4, SrcTO: 5}).Put(msg)
	send(untagged(iwarp.ReadRequest, 0, 1, msg),
		"1 1 1 0 0x01 0x00000001 0x0000000000000002 3 0x00000004 0x0000000000000005")
	response := make([]byte, iwarp.TaggedLen)
	iwarp.PutTagged(response, iwarp.ReadResponse, true, 0x33, 0x44)
	send(response, "1 0x00000033 0x0000000000000044 0x02")
	send(untagged(iwarp.SendSEInv, 0x77, 1, nil), "1 0 1 0 0x06 119")
	msg = make([]byte, iwarp.AtomicRequestLen)
	(&iwarp.Atomic{Op: iwarp.CmpSwap, ID: 9, STag: 1, TO: 2, Data: 3, Mask: 4, Compare: 5, CompareMask: 6}).Put(msg)
	send(untagged(iwarp.AtomicRequest, 0, 2, msg), "1 1 2 0 0x0a 9 1 2 3 0x0000000000000004 5 0x0000000000000006")
	msg = make([]byte, iwarp.AtomicResponseLen)
	iwarp.PutAtomicResponse(msg, 9, 10)
	send(untagged(iwarp.AtomicResponse, 0, 1, msg), "1 3 1 0 0x0b 9 10")
	term := iwarp.Terminate{Code: iwarp.ReadAccess, SegLen: 46, DDP: untagged(iwarp.ReadRequest, 0, 1, nil),
		RDMAP: make([]byte, iwarp.ReadRequestLen)}
	send(untagged(iwarp.TerminateOp, 0, 1, term.Append(nil)), "1 2 1 0 0x07 0x00 0x01 0x02 1 1 1 002e")
	fields := []string{"_ws.malformed", "iwarp_mpa.crc_check", "iwarp_ddp.last_flag", "iwarp_ddp.stag",
		"iwarp_ddp.tagged_offset", "iwarp_ddp.qn", "iwarp_ddp.msn", "iwarp_ddp.mo", "iwarp_rdma.opcode",
		"iwarp_rdma.inval_stag", "iwarp_rdma.sinkstag", "iwarp_rdma.sinkto", "iwarp_rdma.rdmardsz",
		"iwarp_rdma.srcstag", "iwarp_rdma.srcto"}
	for _, f := range []string{"atomic.request_identifier", "atomic.remote_stag", "atomic.remote_tagged_offset",
		"atomic.swap_data", "atomic.swap_mask", "atomic.compare_data", "atomic.compare_mask",
		"atomic.original_request_identifier", "atomic.original_remote_data_value", "term_layer", "term_etype_rdma",
		"term_errcode_rdma", "term_hdrct_m", "hdrct_d", "hdrct_r", "term_ddp_seg_len"} {
		fields = append(fields, "iwarp_rdma."+f)
	}
	got := c.dissect(fields...)
	if len(got) != len(want)+2 {
		t.Fatalf("tshark decodes %d packets, want %d:\n%s", len(got), len(want)+2, strings.Join(got, "\n"))
	}
	for i, w := range want {
		if got[i+2] != w {
			t.Errorf("tshark decodes packet %d as\n%s, want\n%s", i, got[i+2], w)
		}
	}
}

package explain

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// The ladders of Linux peers: SEND, READ across the last PSN, a lossy network with NAKs and
// retransmissions, RNR NAKs until the retries are exhausted, a CM session, a rejected CM request, atomics,
// an invalidated window.
func TestLadders(t *testing.T) {
	for _, name := range []string{"rc_pingpong_mtu4096", "psn_wrap", "rc_loss", "rnr_exceeded", "rping", "cm_reject",
		"atomic_cas", "inv"} {
		want, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if status, out, errs := explain(captures + name + ".pcap"); status != 0 || out != string(want) {
			t.Errorf("%s: status %d %s\n%s\nwant\n%s", name, status, errs, out, want)
		}
	}
}

type record struct {
	ci   gopacket.CaptureInfo
	data []byte
}

// records reads a reference capture.
func records(t *testing.T, name string) (list []record, link layers.LinkType) {
	t.Helper()
	f, err := os.Open(captures + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return list, r.LinkType()
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, record{ci, data})
	}
}

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// classic writes a pcap file with time stamps in nanoseconds or microseconds.
func classic(o byteOrder, nano bool, link layers.LinkType, list []record) []byte {
	magic, unit := uint32(0xA1B2C3D4), 1000
	if nano {
		magic, unit = 0xA1B23C4D, 1
	}
	b := o.AppendUint32(nil, magic)
	b = o.AppendUint16(o.AppendUint16(b, 2), 4)
	b = o.AppendUint64(b, 0)
	b = o.AppendUint32(o.AppendUint32(b, 1<<18), uint32(link))
	for _, r := range list {
		b = o.AppendUint32(o.AppendUint32(b, uint32(r.ci.Timestamp.Unix())), uint32(r.ci.Timestamp.Nanosecond()/unit))
		b = o.AppendUint32(o.AppendUint32(b, uint32(len(r.data))), uint32(r.ci.Length))
		b = append(b, r.data...)
	}
	return b
}

// ng writes a pcapng file with time stamps in microseconds.
func ng(o byteOrder, link layers.LinkType, list []record) (b []byte) {
	block := func(kind uint32, body []byte) {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		n := uint32(len(body) + 12)
		b = append(o.AppendUint32(o.AppendUint32(b, kind), n), body...)
		b = o.AppendUint32(b, n)
	}
	block(pcapngMagic, o.AppendUint64(o.AppendUint16(o.AppendUint16(o.AppendUint32(nil, 0x1A2B3C4D), 1), 0), 1<<64-1))
	block(1, o.AppendUint32(o.AppendUint16(o.AppendUint16(nil, uint16(link)), 0), 0))
	block(5, o.AppendUint64(o.AppendUint32(nil, 0), 0)) // interface statistics, which have no packet
	for _, r := range list {
		us := uint64(r.ci.Timestamp.UnixMicro())
		body := o.AppendUint32(o.AppendUint32(o.AppendUint32(nil, 0), uint32(us>>32)), uint32(us))
		body = o.AppendUint32(o.AppendUint32(body, uint32(len(r.data))), uint32(r.ci.Length))
		block(6, append(body, r.data...))
	}
	return b
}

func explainBytes(t *testing.T, b []byte) (status int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return explain(file)
}

// Every file format gives the same ladder.
func TestForms(t *testing.T) {
	want, err := os.ReadFile("testdata/psn_wrap.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, link := records(t, "psn_wrap.pcap")
	for name, b := range map[string][]byte{
		"pcap, little-endian":           classic(binary.LittleEndian, false, link, list),
		"pcap, big-endian":              classic(binary.BigEndian, false, link, list),
		"pcap, nanoseconds":             classic(binary.LittleEndian, true, link, list),
		"pcap, nanoseconds, big-endian": classic(binary.BigEndian, true, link, list),
		"pcapng, little-endian":         ng(binary.LittleEndian, link, list),
		"pcapng, big-endian":            ng(binary.BigEndian, link, list),
		"pcapng, sections of both byte orders": append(ng(binary.BigEndian, link, list[:5]),
			ng(binary.LittleEndian, link, list[5:])...),
	} {
		if status, out, errs := explainBytes(t, b); status != 0 || out != string(want) {
			t.Errorf("%s: status %d %s\n%s", name, status, errs, out)
		}
	}
}

// A capture of truncated packets gives the same ladder. Only the content of connection management datagrams
// is lost.
func TestTruncatedPackets(t *testing.T) {
	for name, cutAt := range map[string]int{"psn_wrap": 80, "rc_loss": 100, "atomic_cas": 90} {
		want, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		list, link := records(t, name+".pcap")
		for i := range list {
			list[i].data = list[i].data[:min(cutAt, len(list[i].data))]
		}
		for _, b := range [][]byte{classic(binary.LittleEndian, false, link, list), ng(binary.LittleEndian, link, list)} {
			if status, out, errs := explainBytes(t, b); status != 0 || out != string(want) {
				t.Errorf("%s: status %d %s\n%s", name, status, errs, out)
			}
		}
	}
	list, link := records(t, "cm_reject.pcap")
	list[0].data = list[0].data[:128]
	_, out, _ := explainBytes(t, ng(binary.LittleEndian, link, list))
	if !strings.Contains(out, "of which only the beginning was captured") || !strings.Contains(out, "CM REJ") {
		t.Error(out)
	}
}

// Packets that are not RoCE or not complete are counted and skipped.
func TestOtherPackets(t *testing.T) {
	list, link := records(t, "psn_wrap.pcap")
	roce := list[0].data
	change := func(f func(b []byte)) []byte {
		b := bytes.Clone(roce)
		f(b)
		return b
	}
	others := [][]byte{
		change(func(b []byte) { b[12], b[13] = 0x08, 0x06 }), // ARP
		change(func(b []byte) { b[23] = 6 }),                 // TCP
		change(func(b []byte) { b[36], b[37] = 0, 53 }),      // DNS
		change(func(b []byte) { b[42] = 0x1f }),              // no opcode
		change(func(b []byte) { b[14] = 0x41 }),              // an IP header of 4 bytes
		change(func(b []byte) { b[12], b[13] = 0x86, 0xdd }), // IPv4 as IPv6
		roce[:50], roce[:41], roce[:20], roce[:14], roce[:3], {}, {0x45}, // cut short
	}
	var mixed []record
	for i, r := range list {
		mixed = append(mixed, r)
		if i < len(others) {
			mixed = append(mixed, record{gopacket.CaptureInfo{Timestamp: r.ci.Timestamp, Length: len(roce)}, others[i]})
		}
	}
	mixed = append(mixed, record{gopacket.CaptureInfo{Length: len(roce)}, others[len(others)-1]})
	want, err := os.ReadFile("testdata/psn_wrap.txt")
	if err != nil {
		t.Fatal(err)
	}
	ladder, _, _ := strings.Cut(string(want), "\n12 RoCEv2")
	for _, b := range [][]byte{classic(binary.LittleEndian, false, link, mixed), ng(binary.LittleEndian, link, mixed)} {
		status, out, errs := explainBytes(t, b)
		if status != 0 || !strings.HasPrefix(out, ladder) || !strings.Contains(out, "13 other packets") {
			t.Errorf("status %d %s\n%s", status, errs, out)
		}
	}
}

// A file that ends anywhere shows the packets before its end. Either it ends between two packets or an
// error reports the truncation.
func TestCutAnywhere(t *testing.T) {
	list, link := records(t, "cm_reject.pcap")
	for name, b := range map[string][]byte{"pcap": classic(binary.LittleEndian, false, link, list),
		"pcapng": ng(binary.LittleEndian, link, list)} {
		clean := 0
		for n := range len(b) {
			status, out, errs := explainBytes(t, b[:n])
			if status == 0 {
				clean++
				continue
			}
			if !strings.Contains(errs, "middle of a packet") && !strings.Contains(errs, "header") &&
				!strings.Contains(errs, "damaged") &&
				!strings.Contains(errs, "no readable pcapng") && !strings.Contains(errs, "neither pcapng nor pcap") {
				t.Errorf("%s cut at %d: %q", name, n, errs)
			}
			if n > len(b)-20 && !strings.Contains(out, "CM REQ") {
				t.Errorf("%s cut at %d: the first packet is not shown\n%s", name, n, out)
			}
		}
		if clean > 5 {
			t.Errorf("%s: %d truncations are not reported", name, clean)
		}
	}
}

// Files with random damage are read or rejected, with bounded memory.
func TestDamagedFiles(t *testing.T) {
	list, link := records(t, "rping.pcap")
	whole := [][]byte{classic(binary.LittleEndian, false, link, list), ng(binary.LittleEndian, link, list),
		ng(binary.BigEndian, link, list)}
	rng := rand.New(rand.NewPCG(7, 7))
	var before, after runtime.MemStats
	for i := range 600 {
		b := bytes.Clone(whole[i%len(whole)])
		for range 1 + rng.IntN(8) {
			b[rng.IntN(len(b))] = byte(rng.UintN(256))
		}
		if i%5 == 0 {
			at := 4 * rng.IntN(len(b)/4-1)
			binary.LittleEndian.PutUint32(b[at:], 0xfffffff0)
		}
		runtime.ReadMemStats(&before)
		explainBytes(t, b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Fatalf("case %d: %d bytes were allocated for a file of %d", i, n, len(b))
		}
	}
}

// A block or packet with a huge length is rejected with its offset in the file.
func TestHugeLengths(t *testing.T) {
	list, link := records(t, "cm_reject.pcap")
	b := ng(binary.LittleEndian, link, list)
	second := len(b) - (12 + 20 + (len(list[1].data)+3)&^3)
	for at, want := range map[int]string{second + 4: "a block of 4294967280 bytes",
		second + 8: "a packet of interface 4294967280", second + 20: "a packet of 4294967280 bytes"} {
		bad := bytes.Clone(b)
		binary.LittleEndian.PutUint32(bad[at:], 0xfffffff0)
		status, out, errs := explainBytes(t, bad)
		if place := fmt.Sprintf("at byte %d", second); status != 1 || !strings.Contains(errs, want) ||
			!strings.Contains(errs, place) || !strings.Contains(out, "CM REQ") {
			t.Errorf("status %d %s, want %s %s\n%s", status, errs, want, place, out)
		}
	}
	p := classic(binary.LittleEndian, false, link, list)
	binary.LittleEndian.PutUint32(p[16:], 0xffffffff)    // snaplen
	binary.LittleEndian.PutUint32(p[24+8:], 0xfffffff0)  // captured length of the first packet
	binary.LittleEndian.PutUint32(p[24+12:], 0xfffffff0) // its original length
	want := "exceeds"
	if strconv.IntSize == 32 {
		want = "does not fit in int"
	}
	if status, _, errs := explainBytes(t, p); status != 1 || !strings.Contains(errs, want) {
		t.Errorf("status %d %s, want %q", status, errs, want)
	}
}

// The picture is valid XML with an arrow for each step.
func TestSVGIsXML(t *testing.T) {
	for _, name := range []string{"rc_loss", "rping", "cm_reject", "rping_ipv6", "mckey"} {
		svg := filepath.Join(t.TempDir(), "x.svg")
		status, out, errs := explain("--svg", svg, captures+name+".pcap")
		if status != 0 {
			t.Errorf("%s: %s", name, errs)
		}
		f, err := os.Open(svg)
		if err != nil {
			t.Fatal(err)
		}
		lines, arrows := 0, strings.Count(out, "--->")+strings.Count(out, "<---")
		d := xml.NewDecoder(f)
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "line" {
				for _, a := range e.Attr {
					if a.Name.Local == "marker-end" {
						lines++
					}
				}
			}
		}
		f.Close()
		if lines != arrows || arrows == 0 {
			t.Errorf("%s: %d arrows, the ladder has %d", name, lines, arrows)
		}
	}
}

// A file of many empty interfaces costs the reader a multiple of its length. Each section has its own.
func TestInterfacesOfACaptureAreBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "many.pcapng")
	for _, c := range []struct{ sections, more, status int }{{1, 0, 0}, {2, 0, 0}, {1, 1, 1}} {
		var b []byte
		for range c.sections {
			b = pcap.AppendSection(b)
			for range mostInterfaces + c.more {
				b = append(b, 1, 0, 0, 0, 20, 0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0)
			}
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, errs := explain(name)
		if status != c.status || c.status != 0 && !strings.Contains(errs, "more than 65536 interfaces") {
			t.Errorf("%d sections of %d interfaces: status %d, want %d: %s", c.sections, mostInterfaces+c.more, status,
				c.status, errs)
		}
	}
}

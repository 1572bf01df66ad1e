package soft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestCaptureFile: with VERBENA_PCAP the file has every packet, with its ICRC and a comment with its QP, its work
// request and the reason of a retransmission.
func TestCaptureFile(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		t.Setenv("VERBENA_PCAP", file)
		t.Run("traffic", func(t *testing.T) {
			open := n.open(t)
			bad := func(addrs []netip.Addr, ports int) (link.Link, error) {
				l, err := open(addrs, ports)
				if err != nil {
					return nil, err
				}
				return fault.Wrap(l, fault.Config{Seed: 1, Recv: fault.Faults{Loss: 0.1}}), nil
			}
			ends := newEnds(t, n, 2, func(c *soft.Config) { softlink.Set(c, softlink.Links{Open: bad}) })
			x, y := ends[0], ends[1]
			qx, _ := connect(x, y, verbs.QPTypeRC, nil)
			for i := range 50 {
				wr := verbs.SendWR{
					WRID: 1000 + uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
					SGList: []verbs.SGE{x.mr.SGE(0, 5001)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
				}
				must(t, qx.PostSend(wr))
				var wcs [1]verbs.WC
				for k := 0; k == 0; {
					k = get(x.cq.Poll(wcs[:]))(t)
				}
				must(t, wcs[0].Err())
			}
		})
		packets := readCapture(t, file)
		again, wrs := 0, make(map[string]bool)
		sent := make(map[uint32]bool) // by PSN
		for _, p := range packets {
			if strings.Contains(p.comment, "; sent again: ") {
				again++
			} else if psn := wire.BTH(p.data).PSN(); strings.Contains(p.comment, ", WR ") {
				if sent[psn] {
					t.Errorf("PSN %d again, without a reason in the comment %q", psn, p.comment)
				}
				sent[psn] = true
			}
			if _, id, ok := strings.Cut(p.comment, ", WR "); ok {
				id, _, _ = strings.Cut(id, ";")
				wrs[id] = true
			}
			if !strings.HasPrefix(p.comment, "QP 0x") {
				t.Fatalf("a packet has the comment %q", p.comment)
			}
		}
		if len(wrs) != 50 || !wrs["1000"] || !wrs["1049"] {
			t.Errorf("the capture names %d work requests: %v", len(wrs), wrs)
		}
		if again == 0 {
			t.Errorf("no packet of %d was sent again", len(packets))
		}
	})
}

// TestCaptureSnapLen: VERBENA_PCAP_SNAPLEN limits the bytes written of each packet; an invalid value has no effect.
func TestCaptureSnapLen(t *testing.T) {
	for snap, want := range map[string]int{"200": 200, "0": 4000, "127": 4000, "65537": 4000, "many": 4000} {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		t.Setenv("VERBENA_PCAP", file)
		t.Setenv("VERBENA_PCAP_SNAPLEN", snap)
		t.Run(snap, func(t *testing.T) {
			ends := newEnds(t, &networks[0], 2, nil)
			x, y := ends[0], ends[1]
			qx, _ := connect(x, y, verbs.QPTypeRC, nil)
			must(t, qx.PostSend(verbs.SendWR{
				Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{x.mr.SGE(0, 4000)},
				RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
			}))
			x.good(1)
		})
		longest := 0
		r := get(pcapgo.NewNgReader(bytes.NewReader(get(os.ReadFile(file))(t)), pcapgo.DefaultNgReaderOptions))(t)
		for {
			data, _, err := r.ReadPacketData()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			longest = max(longest, len(data))
		}
		if want == 200 && longest != 200 || want > 200 && longest < want/4 {
			t.Errorf("%s: the longest packet has %d bytes", snap, longest)
		}
	}
}

// TestCaptureComplaintsComeOnce: a wrong value is reported once, whatever the number of devices.
func TestCaptureComplaintsComeOnce(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct{ file, snap, want string }{
		{filepath.Join(folder, "x.pcapng"), folder, "VERBENA_PCAP_SNAPLEN=" + folder + ": must be"},
		{filepath.Join(folder, "no", "x.pcapng"), "", "nothing is captured: "},
	} {
		t.Setenv("VERBENA_PCAP", c.file)
		t.Setenv("VERBENA_PCAP_SNAPLEN", c.snap)
		said := get(os.Create(filepath.Join(folder, "stderr")))(t)
		old := os.Stderr
		os.Stderr = said
		t.Run(c.want, func(t *testing.T) {
			ends := newEnds(t, &networks[0], 2, nil)
			connect(ends[0], ends[1], verbs.QPTypeRC, nil)
		})
		os.Stderr = old
		must(t, said.Close())
		if text := string(get(os.ReadFile(said.Name()))(t)); strings.Count(text, c.want) != 1 {
			t.Errorf("said %q, want %q once", text, c.want)
		}
	}
}

// TestCaptureFileUnwritable: a program whose capture file cannot be written works without the capture.
func TestCaptureFileUnwritable(t *testing.T) {
	t.Setenv("VERBENA_PCAP", filepath.Join(t.TempDir(), "no", "such", "folder.pcapng"))
	ends := newEnds(t, &networks[0], 2, nil)
	connect(ends[0], ends[1], verbs.QPTypeRC, nil)
}

type capturedPacket struct {
	comment string
	data    []byte // BTH to pad
}

// readCapture reads a file with the packets of a device's captures and checks their headers and ICRCs.
func readCapture(t *testing.T, name string) (list []capturedPacket) {
	t.Helper()
	f := get(os.Open(name))(t)
	defer f.Close()
	r := get(pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions))(t)
	for {
		data, _, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		if len(opts.Comments) != 1 {
			t.Fatalf("a packet has %d comments", len(opts.Comments))
		}
		if len(data) < 28 || data[0] != 0x45 || int(binary.BigEndian.Uint16(data[2:])) != len(data) {
			t.Fatalf("not an IP packet of its length: %x", data)
		}
		src, _ := netip.AddrFromSlice(data[12:16])
		dst, _ := netip.AddrFromSlice(data[16:20])
		u := data[20:]
		flow := wire.NewFlow(src, dst, binary.BigEndian.Uint16(u), binary.BigEndian.Uint16(u[2:]))
		body := u[8:]
		if got := binary.LittleEndian.Uint32(body[len(body)-4:]); got != flow.ICRC(body[:len(body)-4], 0) {
			t.Fatalf("wrong ICRC %08x", got)
		}
		if _, err := wire.Parse(body[:len(body)-4]); err != nil {
			t.Fatal(err)
		}
		list = append(list, capturedPacket{opts.Comments[0], body[:len(body)-4]})
	}
}

package iwarp_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// unhex decodes hexadecimal digits between which there may be spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	request = "4d504120494420526571204672616d65 " // MPA ID Req Frame
	reply   = "4d504120494420526570204672616d65 " // MPA ID Rep Frame
)

// TestI_MPA_07_EnhancedStart decodes the words of IRD and ORD, those of siw's captures among them.
func TestI_MPA_07_EnhancedStart(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		want      iwarp.Start
	}{
		{"revision 1", request + "4001 0003 616263", iwarp.Start{CRC: true, Rev: 1, Private: []byte("abc")}},
		{"revision 1, markers", reply + "a001 0000", iwarp.Start{
			Reply: true, Markers: true, Reject: true, Rev: 1, Private: []byte{}}},
		{"siw, peer-to-peer", request + "1002 0004 8001 c001", iwarp.Start{
			Rev: 2, Enhanced: true, PeerToPeer: true, IRD: 1, ORD: 1, RTR: iwarp.RTRWrite | iwarp.RTRRead,
			Private: []byte{}}},
		{"siw's answer", reply + "1002 0004 8001 8001", iwarp.Start{
			Reply: true, Rev: 2, Enhanced: true, PeerToPeer: true, IRD: 1, ORD: 1, RTR: iwarp.RTRWrite,
			Private: []byte{}}},
		{"all", request + "5002 0005 ffff ffff 01", iwarp.Start{
			CRC: true, Rev: 2, Enhanced: true, PeerToPeer: true, IRD: iwarp.DepthUnknown, ORD: iwarp.DepthUnknown,
			RTR: iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead, Private: []byte{1}}},
		{"revision 2 without depths", request + "0002 0001 07", iwarp.Start{Rev: 2, Private: []byte{7}}},
	} {
		b := unhex(t, c.hex)
		got, n, err := iwarp.ParseStart(append(bytes.Clone(b), 9, 9), c.want.Reply)
		if err != nil || n != len(b) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %d, %v, want %+v, %d", c.name, got, n, err, c.want, len(b))
		}
		if again := got.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%s: built again as %x, want %x", c.name, again, b)
		}
	}
	// Before revision 2 the bit is reserved, and the depths do not exist.
	if s, _, err := iwarp.ParseStart(unhex(t, request+"1001 0004 01020304"), false); err != nil || s.Enhanced ||
		len(s.Private) != 4 {
		t.Errorf("the S bit of revision 1: %+v, %v", s, err)
	}
}

// TestStartRefused gives ParseStart frames that it must refuse, and every prefix of a good one.
func TestStartRefused(t *testing.T) {
	good := unhex(t, request+"1002 0006 00010002 abcd")
	for n := range good {
		if _, _, err := iwarp.ParseStart(good[:n], false); !errors.Is(err, iwarp.ErrShort) {
			t.Errorf("%d bytes of a frame: %v, want ErrShort", n, err)
		}
	}
	for n := range 16 {
		bad := bytes.Clone(good[:n+1])
		bad[n] ^= 0x20
		if _, _, err := iwarp.ParseStart(bad, false); !errors.Is(err, iwarp.ErrKey) {
			t.Errorf("byte %d of the key wrong: %v, want ErrKey", n, err)
		}
	}
	for hex, want := range map[string]error{
		reply + "1002 0004 00010001": iwarp.ErrKey,
		request + "0001 0201":        iwarp.ErrPrivate,
		request + "1002 ffff":        iwarp.ErrPrivate,
		request + "1002 0003 000100": iwarp.ErrDepths,
		request + "0001 0200":        iwarp.ErrShort,
	} {
		if _, _, err := iwarp.ParseStart(unhex(t, hex), false); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", hex, err, want)
		}
	}
}

// TestI_MPA_04_SIWDefaults checks what siw asks for: revision 2 with depths, no markers, CRCs only on demand.
func TestI_MPA_04_SIWDefaults(t *testing.T) {
	for _, name := range captures.IWARPNames() {
		client, server := captures.ReadIWARP(t, name)
		for i, b := range [][]byte{client, server} {
			s, _, err := iwarp.ParseStart(b, i == 1)
			if err != nil || s.Rev != iwarp.Rev2 || !s.Enhanced || s.Markers || s.Reject ||
				s.CRC != (name == "rping_crc") || s.PeerToPeer != (name == "rping_p2p") {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
		}
	}
}

// TestI_MPA_10_PrivateData checks that the user's private data follow IRD and ORD at once: those of rsocket begin with
// its version.
func TestI_MPA_10_PrivateData(t *testing.T) {
	client, server := captures.ReadIWARP(t, "rstream")
	for i, b := range [][]byte{client, server} {
		s, _, err := iwarp.ParseStart(b, i == 1)
		if err != nil || len(s.Private) != 40 || s.Private[0] != 1 {
			t.Errorf("private data %x, %v", s.Private, err)
		}
	}
}

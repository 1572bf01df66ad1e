package mr

import (
	"bytes"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// FLUSH of a whole region or window asks for its key: it must be an rkey of the QP's domain, with the right, and of a
// window of type 2 one of the QP.
func TestCheckKey(t *testing.T) {
	tab, r := bed(t)
	r.Access |= FlushGlobal
	w := window(t, tab, Type2)
	b := bindTo(tab, w, r)
	b.Access |= FlushGlobal
	mustBind(t, tab, &b)
	empty := add(t, tab, &Region{PD: testPD, Access: FlushGlobal})
	for name, c := range map[string]struct {
		key, pd uint32
		qp      uint64
		need    Access
		want    error
	}{
		"good":                     {r.RKey, testPD, testQP, FlushGlobal, nil},
		"a window":                 {b.RKey, testPD, testQP, FlushGlobal, nil},
		"a window of another QP":   {b.RKey, testPD, testQP + 1, FlushGlobal, ErrOtherQP},
		"a window, another domain": {b.RKey, testPD + 1, testQP, FlushGlobal, ErrPD},
		"a window's old key":       {b.RKey ^ 1, testPD, testQP, FlushGlobal, ErrKey},
		"a window without right":   {b.RKey, testPD, testQP, MWBind, ErrAccess},
		"no region":                {r.RKey + 1<<20, testPD, testQP, FlushGlobal, ErrKey},
		"another low byte":         {r.RKey ^ 1, testPD, testQP, FlushGlobal, ErrKey},
		"another domain":           {r.RKey, testPD + 1, testQP, FlushGlobal, ErrPD},
		"without right":            {r.RKey, testPD, testQP, RemoteAtomic, ErrAccess},
		"for nothing":              {r.RKey, testPD, testQP, 0, ErrAccess},
		"a region of no bytes":     {empty.RKey, testPD, testQP, FlushGlobal, nil},
	} {
		if err := tab.CheckKey(c.key, c.pd, c.qp, c.need); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A peer that needs no right gets no bytes.
func TestCheckRemoteNeedsARight(t *testing.T) {
	tab, r := bed(t)
	r.Access |= RemoteRead
	if b, _, err := tab.CheckRemote(r.RKey, testBase, 4, testPD, testQP, RemoteRead); err != nil || len(b) != 4 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if b, _, err := tab.CheckRemote(r.RKey, testBase, 4, testPD, testQP, 0); !errors.Is(err, ErrAccess) || b != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Of the keys that the source gives, those of slot 0 and of slots in use are left out.
func TestSourceOfKeysRepeats(t *testing.T) {
	source := []uint32{0x5, 0x105, 0x1ff, 0x203, 0x0ff, 0x301}
	tab := NewTable(16, func() uint32 {
		k := source[0]
		source = source[1:]
		return k
	})
	var got []uint32
	for range 3 {
		got = append(got, add(t, tab, &Region{}).RKey)
	}
	if !slices.Equal(got, []uint32{0x105, 0x203, 0x301}) {
		t.Errorf("keys %#x", got)
	}
	tab = NewTable(16, Counted())
	for _, want := range []uint32{0x101, 0x201, 0x301} {
		if r := add(t, tab, &Region{}); r.RKey != want || r.LKey != want {
			t.Errorf("keys %#x and %#x, want %#x", r.LKey, r.RKey, want)
		}
	}
}

// Set stores the value, and nothing beside it, in aligned and unaligned memory, also at the end of a region.
func TestSet(t *testing.T) {
	for at := range 9 {
		b := bytes.Repeat([]byte{0xEE}, 32)
		if !Set(b[at:at+8:at+8], 0x0102030405060708) || Load(b[at:]) != 0x0102030405060708 {
			t.Errorf("offset %d: % x", at, b)
		}
		for i, v := range b {
			if (i < at || i >= at+8) && v != 0xEE {
				t.Errorf("offset %d: byte %d is %#x", at, i, v)
			}
		}
	}
}

// CopySum copies each byte and sums them up, for lengths of every remainder.
func TestCopySum(t *testing.T) {
	if !wire.SumsWhileCopying {
		t.Skip("this processor has no instructions for it")
	}
	src := make([]byte, wire.LeastSum+200)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for n := wire.LeastSum + 15; n <= len(src); n++ {
		dst := make([]byte, len(src))
		sum, ok := CopySum(dst[:n], src[:n])
		want := ^crc32.Update(0xFFFFFFFF, crc32.IEEETable, src[:n]) // from a register of 0
		if !ok || sum != want || !bytes.Equal(dst[:n], src[:n]) || bytes.ContainsFunc(dst[n:], notZero) {
			t.Fatalf("%d bytes: sum %#x, want %#x, %v", n, sum, want, ok)
		}
	}
}

// CopyCRC copies each byte and continues the CRC of an FPDU, for lengths of every remainder, from any CRC.
func TestCopyCRC(t *testing.T) {
	src := make([]byte, 4096)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for n := range iwarp.LeastSum + 200 {
		if n > iwarp.LeastSum+100 {
			n = len(src) - n%100
		}
		dst, before := make([]byte, len(src)), uint32(n)*0x9E3779B1
		crc, ok := CopyCRC(before, dst[:n], src[:n])
		if want := crc32.Update(before, table, src[:n]); !ok || crc != want {
			t.Fatalf("%d bytes: CRC %#x, want %#x, %v", n, crc, want, ok)
		}
		if !bytes.Equal(dst[:n], src[:n]) || bytes.ContainsFunc(dst[n:], notZero) {
			t.Fatalf("%d bytes are not copied as they are, and only they", n)
		}
	}
}

func notZero(r rune) bool { return r != 0 }

package term

import (
	"bytes"
	"testing"
	"time"
)

func TestNoColourWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	p := NewPrinter(&b)
	p.Printf("%s", p.Bold("bold")+p.Red("red"))
	if b.String() != "boldred" {
		t.Errorf("%q", b.String())
	}
}

func TestTable(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		p := &Printer{&b, colour}
		p.Table([]string{"what", "µs", "why "}, [][]string{{"SEND", p.Green("12.5"), "a"}, {"R", "1", p.Dim("bb")}})
		want := "  what    µs  why\n  SEND  12.5  a\n  R        1  bb\n"
		if colour {
			want = "\x1b[1m  what    µs  why\x1b[0m\n  SEND  \x1b[32m12.5\x1b[0m  a\n  R        1  \x1b[2mbb\x1b[0m\n"
		}
		if b.String() != want {
			t.Errorf("colour %v:\n%q\nwant\n%q", colour, b.String(), want)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 bytes"},
		{Bytes(1), "1 byte"},
		{Bytes(1023), "1023 bytes"},
		{Bytes(4096), "4 KiB"},
		{Bytes(1 << 20), "1 MiB"},
		{Bytes(3 << 29), "1.5 GiB"},
		{Count(999), "999"},
		{Count(1000), "1,000"},
		{Count(1234567), "1,234,567"},
		{Rate(2e9, 2*time.Second), "1.00 GB/s"},
		{Rate(5e6, time.Second), "5 MB/s"},
		{Rate(1500, time.Second), "1.5 kB/s"},
		{Micros(12345 * time.Nanosecond), "12.3 µs"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

package printable

import (
	"strings"
	"testing"
	"unicode"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "vrb_eth0": "vrb_eth0", "Übertragung é 世界": "Übertragung é 世界", `C:\x "y"`: `C:\x "y"`,
		"\x1b[31mRED": `"\x1b[31mRED"`, "a\nb": `"a\nb"`, "\a": `"\a"`, "\x7f": `"\x7f"`, "\u009b31m": `"\u009b31m"`,
		"\xff": `"\xff"`, "\xc2": `"\xc2"`, "\u202egnp.exe": `"\u202egnp.exe"`, "�": "�",
	} {
		if got := Text(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "a\n\tb\n": "a\n\tb\n",
		"\x1b]0;owned\x07\n": `\x1b]0;owned\a` + "\n", "\xff\r": `\xff\r`, `"a" \`: `"a" \`,
	} {
		if got := Lines(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[2J\u009b0mx\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{Text(s), strings.NewReplacer("\n", "", "\t", "").Replace(Lines(s))} {
			for _, r := range got {
				if !unicode.IsPrint(r) {
					t.Fatalf("%q: %q", s, got)
				}
			}
		}
	})
}

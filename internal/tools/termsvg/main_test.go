package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nb\n":              "[[{{false false } a}] [{{false false } b}]]",
		"waiting\rdone\n":       "[[{{false false } done}]]",
		"\x1b[1mx\x1b[0my":      "[[{{true false } x} {{false false } y}]]",
		"\x1b[2;32mok\x1b[39m.": "[[{{false true #5fd7a7} ok} {{false true } .}]]",
		"old\x1b[2J\x1b[Hnew":   "[[{{false false } new}]]",
		"Script started on x\n\nq\n\nScript done on y": "[[{{false false } q}]]",
	} {
		if got := fmt.Sprint(parse(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestDraw(t *testing.T) {
	svg := string(draw("p <1>", parse("\x1b[31mred & <b>\x1b[0m")))
	for _, want := range []string{"$ p &lt;1&gt;", `<tspan fill="#ff8066">red &amp; &lt;b&gt;</tspan>`, "</svg>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
}

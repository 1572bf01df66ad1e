package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	floors := []floor{{"top", []string{"a", "b"}}, {"bottom", []string{"c"}}}
	for name, c := range map[string]struct {
		imports map[string][]string
		want    string
	}{
		"down":     {map[string][]string{"a": {"c"}, "b": {"c"}, "c": nil}, ""},
		"sideways": {map[string][]string{"a": {"b"}, "b": nil, "c": nil}, "a imports b, which is not below it"},
		"up":       {map[string][]string{"a": nil, "b": nil, "c": {"b"}}, "c imports b, which is not below it"},
		"unknown":  {map[string][]string{"a": nil, "b": nil, "c": nil, "d": nil}, "d is on no floor"},
		"gone":     {map[string][]string{"a": nil, "c": nil}, "b does not exist"},
	} {
		err := check(floors, c.imports)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestReduce(t *testing.T) {
	got := reduce(map[string][]string{"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": nil})
	if s := fmt.Sprint(got); s != "map[a:[b] b:[c] c:[d]]" {
		t.Errorf("%s", s)
	}
}

func TestDraw(t *testing.T) {
	floors := []floor{{"top", []string{"a"}}, {"bottom", []string{"internal/b"}}}
	svg := string(draw(floors, map[string][]string{"a": {"internal/b"}}))
	for _, want := range []string{"<svg ", ">a</text>", ">b</text>", "<path ", "</svg>", "sans-serif"} {
		if strings.Count(svg, want) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(svg, want), want, svg)
		}
	}
}

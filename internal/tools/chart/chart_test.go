package chart

import (
	"fmt"
	"testing"
)

func TestFormat(t *testing.T) {
	for name, want := range map[string]string{"a.svg": "svg", "b/c.PNG": "png", "x.pdf": "", "svg": ""} {
		if got := Format(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestLogTicks(t *testing.T) {
	var got []string
	for _, tick := range LogTicks(0.4, 25) {
		got = append(got, tick.Label)
	}
	if fmt.Sprint(got) != "[0.5 1 2 5 10 20]" {
		t.Errorf("%v", got)
	}
}

func TestStyle(t *testing.T) {
	if f := New().X.Label.TextStyle.Font; f.Variant != "Sans" {
		t.Errorf("font %+v", f)
	}
	if Color(0) != Color(len(Colors)) {
		t.Error("the palette does not repeat")
	}
}

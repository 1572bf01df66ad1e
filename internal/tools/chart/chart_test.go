package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot"
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

// No point lies on the frame.
func TestRange(t *testing.T) {
	linear := plot.Axis{Max: 160, Scale: plot.LinearScale{}}
	Range(&linear)
	logarithmic := plot.Axis{Min: 2, Max: 2, Scale: plot.LogScale{}}
	Range(&logarithmic)
	if linear.Min != 0 || linear.Max != 170 || logarithmic.Min >= 1.9 || logarithmic.Max <= 2.1 {
		t.Errorf("%v to %v, %v to %v", linear.Min, linear.Max, logarithmic.Min, logarithmic.Max)
	}
}

// Bars have names and values, and lie within the frame.
func TestBars(t *testing.T) {
	p := New()
	if err := Bars(p, []string{"one", "two"}, []float64{1.2345, 2500}); err != nil {
		t.Fatal(err)
	}
	if p.Y.Min != 0 || p.Y.Max <= 2600 || p.X.Min != -1 || p.X.Max != 2 {
		t.Errorf("%v to %v, %v to %v", p.X.Min, p.X.Max, p.Y.Min, p.Y.Max)
	}
	file := filepath.Join(t.TempDir(), "x.svg")
	if err := Save(p, 400, 300, file); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">one<", ">two<", ">1.234<", ">2500.0<", ">2500<", "sans-serif"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in %s", want, svg)
		}
	}
}

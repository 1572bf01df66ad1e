// Package chart sets the style of the plots that the tools draw: a sans-serif typeface and colours that readers with a
// colour vision deficiency can tell apart. It imports gonum.org/v1/plot.
package chart

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colors is the palette of Okabe and Ito, without yellow, which is too light on white.
var Colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xB2, 0xFF}, // blue
	color.RGBA{0xD5, 0x5E, 0x00, 0xFF}, // vermillion
	color.RGBA{0x00, 0x9E, 0x73, 0xFF}, // bluish green
	color.RGBA{0xCC, 0x79, 0xA7, 0xFF}, // reddish purple
	color.RGBA{0xE6, 0x9F, 0x00, 0xFF}, // orange
	color.RGBA{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
}

// Color returns color i of the palette, which repeats.
func Color(i int) color.Color { return Colors[i%len(Colors)] }

// New makes a plot in the tools' style.
func New() *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.X.Tick.Marker, p.Y.Tick.Marker = linearTicks{}, linearTicks{}
	return p
}

// margin is the space between the picture's edge and what is drawn.
const margin vg.Length = 8

// Range widens an axis, so that no point lies on the frame: a linear one that begins at 0 at its end, a logarithmic
// one at both ends.
func Range(a *plot.Axis) {
	if _, log := a.Scale.(plot.LogScale); log {
		f := math.Pow(max(a.Max/a.Min, 10), 0.04)
		a.Min, a.Max = a.Min/f, a.Max*f
		return
	}
	a.Max += (a.Max - a.Min) / 16
}

// Bars draws one bar for each value, with the value above it and its name below it.
func Bars(p *plot.Plot, names []string, values []float64) error {
	labels := plotter.XYLabels{}
	for i, v := range values {
		bar, err := plotter.NewBarChart(plotter.Values{v}, vg.Points(70))
		if err != nil {
			return err
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), Color(i), 0
		p.Add(bar)
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: v})
		digits := 1
		if v < 10 {
			digits = 3
		}
		labels.Labels = append(labels.Labels, strconv.FormatFloat(v, 'f', digits, 64))
	}
	above, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	above.Offset.Y = vg.Points(4)
	for i := range above.TextStyle {
		above.TextStyle[i].XAlign = text.XCenter
	}
	p.Add(above)
	p.NominalX(names...)
	p.X.Min, p.X.Max = -1, float64(len(values))
	p.Y.Min = 0
	Range(&p.Y)
	Range(&p.Y) // for the text above the highest bar
	return nil
}

// linearTicks are those of a linear axis, with labels that have no more digits than they need.
type linearTicks struct{ plot.DefaultTicks }

func (t linearTicks) Ticks(least, most float64) []plot.Tick {
	ticks := t.DefaultTicks.Ticks(least, most)
	for i := range ticks {
		if v, err := strconv.ParseFloat(ticks[i].Label, 64); err == nil {
			ticks[i].Label = strconv.FormatFloat(v, 'f', -1, 64)
		}
	}
	return ticks
}

// Save writes the plot as .svg or .png. The text of an SVG is in Liberation Sans or, where that is missing,
// in a typeface of the same widths.
func Save(p *plot.Plot, width, height vg.Length, file string) error {
	w, err := draw.NewFormattedCanvas(width, height, Format(file))
	if err != nil {
		return err
	}
	dc := draw.New(w)
	dc.SetColor(p.BackgroundColor)
	dc.Fill(dc.Rectangle.Path())
	p.Draw(draw.Crop(dc, margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return err
	}
	out := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(file, out, 0o666)
}

// Format returns the picture format for a file name, "svg" or "png"; empty for others.
func Format(name string) string {
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".svg", ".png":
		return ext[1:]
	}
	return ""
}

// LogTicks returns ticks at 1, 2 and 5 times each power of ten.
func LogTicks(least, most float64) (ticks []plot.Tick) {
	for e := math.Floor(math.Log10(least)); e <= math.Log10(most); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v >= least*0.999 && v <= most*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
			}
		}
	}
	return ticks
}

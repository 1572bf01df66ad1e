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
	"gonum.org/v1/plot/vg"
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
	return plot.New()
}

// Save writes the plot as .svg or .png. The text of an SVG is in Liberation Sans or, where that is missing,
// in a typeface of the same widths.
func Save(p *plot.Plot, width, height vg.Length, file string) error {
	w, err := p.WriterTo(width, height, Format(file))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return err
	}
	text := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(file, text, 0o666)
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

package perftest

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/verbena-rdma/verbena/internal/tools/chart"
)

// logFrom is the ratio between the largest and the smallest result from which the axis is logarithmic.
const logFrom = 20

// draw plots bandwidth or latency over size; for one size as bars.
func (r *run) draw(file string) error {
	p := chart.New()
	p.Title.Text = fmt.Sprintf("%s %s, %s to %s", r.name, connectionName(r.typ), r.ctx.Device().Name(), r.peer.peer())
	p.X.Label.Text = "message size (bytes)"
	p.X.Tick.Marker = plot.TickerFunc(powersOfTwo)
	p.X.Scale = plot.LogScale{}
	grid := plotter.NewGrid()
	p.Add(grid)
	unit, quantities := r.quantities()
	p.Y.Label.Text = unit
	if len(r.results) == 1 {
		var names []string
		var values []float64
		for _, q := range quantities {
			names, values = append(names, q.name), append(values, q.of(&r.results[0]))
		}
		p.X.Label.Text = fmt.Sprintf("messages of %d bytes", r.results[0].bw.size+r.results[0].lat.size)
		p.X.Scale, p.X.Tick.Marker, grid.Vertical.Width = plot.LinearScale{}, plot.DefaultTicks{}, 0
		if err := chart.Bars(p, names, values); err != nil {
			return err
		}
		return r.saveChart(p, file)
	}
	if err := r.addLines(p, quantities); err != nil {
		return err
	}
	if p.Y.Min > 0 && p.Y.Max > logFrom*p.Y.Min {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	chart.Range(&p.X)
	chart.Range(&p.Y)
	return r.saveChart(p, file)
}

// quantity is a number of each result.
type quantity struct {
	name string
	of   func(*result) float64
}

// quantities returns those that draw plots, with their unit.
func (r *run) quantities() (unit string, list []quantity) {
	switch {
	case !r.lat:
		return r.unit() + "/sec", []quantity{
			{"average", func(x *result) float64 { return x.bw.average }},
			{"peak", func(x *result) float64 { return x.bw.peak }},
		}
	case r.duration > 0:
		return "microseconds", []quantity{{"average", func(x *result) float64 { return x.lat.average }}}
	}
	return "microseconds", []quantity{
		{"typical", func(x *result) float64 { return x.lat.typical }},
		{"99 %", func(x *result) float64 { return x.lat.p99 }},
	}
}

// addLines draws a line over size for each quantity, and the legend.
func (r *run) addLines(p *plot.Plot, quantities []quantity) error {
	for i, q := range quantities {
		var points plotter.XYs
		for i := range r.results {
			x := &r.results[i]
			points = append(points, plotter.XY{X: float64(max(x.bw.size+x.lat.size, 1)), Y: q.of(x)})
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, dots.Shape = chart.Color(i), chart.Color(i), draw.CircleGlyph{}
		if i > 0 {
			line.Dashes, dots.Shape = []vg.Length{vg.Points(5), vg.Points(3)}, draw.BoxGlyph{}
		}
		p.Add(line, dots)
		p.Legend.Add(q.name, line, dots)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding = vg.Points(10), vg.Points(-6), vg.Points(3)
	return nil
}

func (r *run) saveChart(p *plot.Plot, file string) error {
	if err := chart.Save(p, 20*vg.Centimeter, 12*vg.Centimeter, file); err != nil {
		return fmt.Errorf("--plot %s: %w", file, err)
	}
	return nil
}

// powersOfTwo returns a tick for each power of two, with a label at the powers of four: 4, 16, 64, 256, 1K.
func powersOfTwo(least, most float64) (ticks []plot.Tick) {
	for e := int(math.Ceil(math.Log2(least))); float64(e) <= math.Log2(most); e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if e%2 == 0 || most/least < 8 {
			t.Label = sizeText(e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

func sizeText(e int) string {
	switch {
	case e >= 20:
		return fmt.Sprintf("%dM", 1<<(e-20))
	case e >= 10:
		return fmt.Sprintf("%dK", 1<<(e-10))
	}
	return fmt.Sprint(1 << max(e, 0))
}

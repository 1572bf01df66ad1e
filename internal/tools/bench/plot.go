package bench

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/verbena-rdma/verbena/internal/tools/chart"
)

// figure is one row of a plot: the results of one name, by record.
type figure struct {
	what    string
	results []*result // nil for a record without the figure
}

// figures returns the results that are compared with TCP, in the order of their first appearance.
func figures(records []*record) (list []*figure) {
	byName := map[string]*figure{}
	for i, rec := range records {
		for k := range rec.Results {
			r := &rec.Results[k]
			if r.BaseOf != "TCP" || r.Ratio <= 0 {
				continue
			}
			f := byName[r.Name]
			if f == nil {
				f = &figure{what: r.What, results: make([]*result, len(records))}
				byName[r.Name] = f
				list = append(list, f)
			}
			f.results[i] = r
		}
	}
	return list
}

// speed returns how many times as fast as TCP a result is, with the lowest and the highest value of all rounds.
func (r *result) speed() (v, low, high float64) {
	v, low, high = r.Ratio, r.Low, r.High
	if low <= 0 || high <= 0 {
		low, high = v, v
	}
	if r.AtMost {
		return 1 / v, 1 / high, 1 / low
	}
	return v, low, high
}

// drawRecords plots the speed of all figures relative to TCP, with a colour for each record.
func drawRecords(records []*record, file string) error {
	list := figures(records)
	if len(list) == 0 {
		return fmt.Errorf("--plot %s: no figure is compared with TCP", file)
	}
	p := chart.New()
	p.X.Label.Text = "times as fast as TCP over loopback (median, with the range of all rounds)"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(chart.LogTicks)
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)
	names := make([]string, len(list))
	for i, f := range list {
		names[len(list)-1-i] = f.what
	}
	p.NominalY(names...)
	p.Y.Tick.Length = 0
	for i, rec := range records {
		if err := addRecord(p, list, i, len(records), rec); err != nil {
			return err
		}
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(list)) - 0.5}})
	if err != nil {
		return err
	}
	p.Add(one)
	// The legend is below the figures.
	p.Y.Min, p.Y.Max = -0.5-0.4*float64(len(records)+1), float64(len(list))-0.5
	p.X.Min, p.X.Max = min(0.95*p.X.Min, 0.5), max(1.05*p.X.Max, 2)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = false, true, vg.Points(2)
	height := vg.Length(2+1.1*float64(len(list))+0.44*float64(len(records)+1)) * vg.Centimeter
	if err := chart.Save(p, 24*vg.Centimeter, height, file); err != nil {
		return fmt.Errorf("--plot %s: %w", file, err)
	}
	return nil
}

// addRecord adds record i of n: a point for each figure, and a line over the range of its rounds.
func addRecord(p *plot.Plot, list []*figure, i, n int, rec *record) error {
	var points plotter.XYs
	for k, f := range list {
		r := f.results[i]
		if r == nil {
			continue
		}
		v, low, high := r.speed()
		y := float64(len(list)-1-k) + 0.6*(float64(n-1)/2-float64(i))/float64(max(n, 2))
		points = append(points, plotter.XY{X: v, Y: y})
		bar, err := plotter.NewLine(plotter.XYs{{X: low, Y: y}, {X: high, Y: y}})
		if err != nil {
			return err
		}
		bar.Color, bar.Width = chart.Color(i), vg.Points(1.5)
		p.Add(bar)
	}
	if len(points) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}}
	dots.GlyphStyle = draw.GlyphStyle{Color: chart.Color(i), Radius: vg.Points(3), Shape: shapes[i%len(shapes)]}
	p.Add(dots)
	p.Legend.Add(rec.label(), dots)
	return nil
}

// label names the record in the legend.
func (r *record) label() string {
	text := fmt.Sprintf("%s, %d processors", r.Machine, r.Processors)
	if r.Load != "" {
		text += ", load " + loadText(r.Load)
	}
	return text + ", " + r.Date
}

// loadText returns the load average of one minute from three numbers; other text, such as "1 to 3", is unchanged.
func loadText(load string) string {
	var one, five, fifteen float64
	if n, _ := fmt.Sscan(load, &one, &five, &fifteen); n == 3 {
		return fmt.Sprintf("%.0f", one)
	}
	return load
}

// plotFiles draws recorded measurements.
func plotFiles(out string, files []string) error {
	records, err := readRecords(files)
	if err != nil {
		return err
	}
	slices.SortStableFunc(records, func(a, b *record) int { return len(b.Results) - len(a.Results) })
	return drawRecords(records, out)
}

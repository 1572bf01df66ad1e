package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Sizes of the picture in pixels.
const (
	width     = 1180
	left      = 150 // where the boxes begin; the titles are left of it
	rowHeight = 66
	boxHeight = 28
	letter    = 7.2 // width of a character
)

type box struct{ x, y, w float64 }

// draw returns the picture as SVG.
func draw(floors []floor, imports map[string][]string) []byte {
	boxes := place(floors)
	var b bytes.Buffer
	height := rowHeight*(len(floors)+1) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `,
		width, height, width, height)
	b.WriteString(`font-family="Helvetica, Arial, sans-serif" font-size="13">` + "\n")
	b.WriteString(`<title>The packages of Verbena: imports point down only</title>` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	row(&b, 0, "programs")
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#333333">cmd/verbena, examples, interop, internal/tools: may import `+
		`everything below</text>`+"\n", left+14, rowHeight/2+14)
	for i, f := range floors {
		row(&b, i+1, f.title)
	}
	var paths []string
	for p := range boxes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		to := slices.Sorted(slices.Values(imports[p]))
		for _, t := range to {
			line(&b, boxes[p], boxes[t])
		}
	}
	for _, p := range paths {
		boxes[p].draw(&b, p)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// place centres the boxes of each floor.
func place(floors []floor) map[string]box {
	boxes := map[string]box{}
	for i, f := range floors {
		var sum float64
		for _, p := range f.packages {
			sum += boxWidth(p)
		}
		gap := (width - left - sum) / float64(len(f.packages)+1)
		x := left + gap
		for _, p := range f.packages {
			boxes[p] = box{x, float64((i+1)*rowHeight + 24), boxWidth(p)}
			x += boxWidth(p) + gap
		}
	}
	return boxes
}

func boxWidth(path string) float64 { return letter*float64(len(short(path))) + 14 }

// short drops the prefix that most packages have.
func short(path string) string { return strings.TrimPrefix(path, "internal/") }

// row draws the background and the title of floor i.
func row(b *bytes.Buffer, i int, title string) {
	fill := "#f4f6f8"
	if i%2 == 1 {
		fill = "#ffffff"
	}
	fmt.Fprintf(b, `<rect y="%d" width="%d" height="%d" fill="%s"/>`+"\n", i*rowHeight+5, width, rowHeight, fill)
	fmt.Fprintf(b, `<text x="10" y="%d" fill="#666666">%s</text>`+"\n", i*rowHeight+rowHeight/2+10, title)
}

func line(b *bytes.Buffer, from, to box) {
	x1, y1 := from.x+from.w/2, from.y+boxHeight
	x2, y2 := to.x+to.w/2, to.y
	bend := (y2 - y1) / 2
	fmt.Fprintf(b, `<path d="M%.0f %.0f C%.0f %.0f %.0f %.0f %.0f %.0f" fill="none" stroke="#8a97a5"/>`+"\n",
		x1, y1, x1, y1+bend, x2, y2-bend, x2, y2)
}

// draw draws a package: public ones in blue, internal ones in grey.
func (x box) draw(b *bytes.Buffer, path string) {
	fill, stroke := "#e9edf1", "#8a97a5"
	if !strings.HasPrefix(path, "internal/") {
		fill, stroke = "#cfe3f3", "#0072b2"
	}
	fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="%.0f" height="%d" rx="4" fill="%s" stroke="%s"/>`+"\n",
		x.x, x.y, x.w, boxHeight, fill, stroke)
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="middle">%s</text>`+"\n", x.x+x.w/2, x.y+19, short(path))
}

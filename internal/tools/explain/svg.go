package explain

import (
	"bytes"
	"fmt"
	"html"
)

const (
	svgWidth, svgTop, svgStep = 900, 60, 34
	svgLeft, svgRight         = 130, 770
	svgMost                   = 2000 // more steps would make an unreadable picture
)

// picture draws steps that were printed: the two ends as lines, each step as an arrow.
func picture(steps []*step) []byte {
	var b bytes.Buffer
	height := svgTop + svgStep*(len(steps)+2)
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		svgWidth, height)
	b.WriteString(
		`<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">` +
			`<path d="M0,0 L9,4 L0,8 z"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgWidth, height)
	for _, x := range []int{svgLeft, svgRight} {
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="gray"/>`+"\n", x, svgTop-10, x, height-svgStep)
	}
	for i, s := range steps {
		left, right := pair(s)
		y := svgTop + svgStep*(i+1)
		if i == 0 || !samePair(s, steps[i-1]) {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-weight="bold">%s</text>`, svgLeft, y-svgStep,
				html.EscapeString(s.name(left, false)))
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-weight="bold">%v</text>`+"\n", svgRight, y-svgStep,
				html.EscapeString(s.name(right, true)))
		}
		from, to := svgLeft, svgRight
		if s.back {
			from, to = to, from
		}
		color := "black"
		if len(s.notes) > 0 {
			color = "#c00000"
		}
		fmt.Fprintf(&b, `<text x="8" y="%d" fill="gray">%.6f</text>`, y+4, s.at.Seconds())
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" marker-end="url(#head)"/>`, from, y, to, y, color)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>`+"\n", (svgLeft+svgRight)/2, y-4, color,
			html.EscapeString(s.target()+": "+s.line()))
		for _, n := range s.notes {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="%s" font-size="10">%s</text>`+"\n",
				(svgLeft+svgRight)/2, y+11, color,
				html.EscapeString(n))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

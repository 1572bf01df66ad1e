// Termsvg turns the output of a program on a terminal into an SVG picture, for documents.
//
//	script -qc "verbena demo" demo.raw
//	termsvg -title "verbena demo" <demo.raw >demo.svg
//
// It understands the escape sequences for bold, dim and colours, and shows what remains of each line after
// carriage returns. A sequence that clears the screen or moves to its beginning starts the picture anew; all
// others are ignored.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

func main() {
	title := flag.String("title", "", "text above the output")
	flag.Parse()
	in, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = os.Stdout.Write(draw(*title, parse(string(in))))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// style is how a piece of text looks.
type style struct {
	bold, dim bool
	color     string // empty: the ordinary one
}

// span is text in one style.
type span struct {
	style
	text string
}

// sequence matches an escape sequence of a terminal; its parts are the parameters and the final byte.
var sequence = regexp.MustCompile(`\x1b\[([0-9;?]*)([A-Za-z])`)

// colors are those of the SGR codes 31 to 36, to be read on a dark ground with any colour vision.
var colors = map[string]string{
	"31": "#ff8066", "32": "#5fd7a7", "33": "#e6b34d", "34": "#6cb6ff", "35": "#d9a0c8", "36": "#66d0e0",
}

// parse returns the lines that a terminal would show.
func parse(in string) [][]span {
	in = strings.ReplaceAll(in, "\r\n", "\n")
	in = in[max(0, strings.LastIndex(in, "\x1b[2J"), strings.LastIndex(in, "\x1b[H")):]
	var lines [][]span
	var now style
	for line := range strings.SplitSeq(strings.TrimRight(in, "\n"), "\n") {
		if strings.HasPrefix(line, "Script started on ") || strings.HasPrefix(line, "Script done on ") {
			continue
		}
		if i := strings.LastIndex(line, "\r"); i >= 0 {
			line = line[i+1:]
		}
		var spans []span
		for line != "" {
			m := sequence.FindStringSubmatchIndex(line)
			if m == nil {
				spans = append(spans, span{now, line})
				break
			}
			if m[0] > 0 {
				spans = append(spans, span{now, line[:m[0]]})
			}
			if line[m[4]:m[5]] == "m" {
				now = now.change(line[m[2]:m[3]])
			}
			line = line[m[1]:]
		}
		lines = append(lines, spans)
	}
	for len(lines) > 0 && len(lines[0]) == 0 {
		lines = lines[1:]
	}
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// change applies the parameters of an SGR sequence.
func (s style) change(codes string) style {
	for code := range strings.SplitSeq(codes, ";") {
		switch code {
		case "", "0":
			s = style{}
		case "1":
			s.bold = true
		case "2":
			s.dim = true
		case "22":
			s.bold, s.dim = false, false
		case "39":
			s.color = ""
		default:
			if c, ok := colors[code]; ok {
				s.color = c
			}
		}
	}
	return s
}

// Sizes in pixels.
const (
	letter = 7.85
	height = 18
	margin = 16
	bar    = 30 // with the title
)

// draw returns the picture.
func draw(title string, lines [][]span) []byte {
	longest := utf8.RuneCountInString(title) + 8
	for _, line := range lines {
		n := 0
		for _, s := range line {
			n += utf8.RuneCountInString(s.text)
		}
		longest = max(longest, n)
	}
	w, h := int(letter*float64(longest))+2*margin, height*len(lines)+2*margin+bar
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `, w, h, w, h)
	b.WriteString(`font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">` + "\n")
	fmt.Fprintf(&b, `<title>%s</title><rect width="%d" height="%d" rx="8" fill="#1e2430"/>`+"\n",
		html.EscapeString(title), w, h)
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#8b96a8">$ %s</text>`+"\n", margin, bar, html.EscapeString(title))
	for i, line := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#e4e9f0" xml:space="preserve">`, margin, bar+margin+height*(i+1)-4)
		for _, s := range line {
			s.write(&b)
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (s span) write(b *bytes.Buffer) {
	attrs := ""
	if s.bold {
		attrs += ` font-weight="bold"`
	}
	if s.dim {
		attrs += ` fill="#8b96a8"`
	} else if s.color != "" {
		attrs += ` fill="` + s.color + `"`
	}
	fmt.Fprintf(b, "<tspan%s>%s</tspan>", attrs, html.EscapeString(s.text))
}

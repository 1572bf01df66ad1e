// Package term formats output for terminals: colours, aligned tables, and numbers with suitable units. It
// imports golang.org/x/term and the standard library.
package term

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Printer writes text, with or without colours.
type Printer struct {
	io.Writer
	colour bool
}

// NewPrinter returns a printer for w. It uses colours if w is a terminal and neither NO_COLOR nor TERM=dumb
// is set.
func NewPrinter(w io.Writer) *Printer {
	return &Printer{w, IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Printf writes formatted text.
func (p *Printer) Printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// The styles return their argument unchanged if the printer has no colours.
func (p *Printer) Bold(s string) string  { return p.style("1", s) }
func (p *Printer) Dim(s string) string   { return p.style("2", s) }
func (p *Printer) Red(s string) string   { return p.style("31", s) }
func (p *Printer) Green(s string) string { return p.style("32", s) }

func (p *Printer) style(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Table writes rows below a header, with two spaces between columns. The first column, and those whose
// header ends in a space, are left-aligned, the others right-aligned. Cells may contain styles.
func (p *Printer) Table(header []string, rows [][]string) {
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], visible(strings.TrimSuffix(cell, " ")))
		}
	}
	line := func(row []string, style func(string) string) {
		var b strings.Builder
		for i, cell := range row {
			cell = strings.TrimSuffix(cell, " ")
			pad := strings.Repeat(" ", width[i]-visible(cell))
			b.WriteString("  ")
			if i == 0 || strings.HasSuffix(header[i], " ") {
				b.WriteString(cell + pad)
			} else {
				b.WriteString(pad + cell)
			}
		}
		fmt.Fprintln(p, style(strings.TrimRight(b.String(), " ")))
	}
	line(header, p.Bold)
	for _, row := range rows {
		line(row, func(s string) string { return s })
	}
}

// visible returns the number of columns that s takes on the screen.
func visible(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		i := strings.IndexByte(s, 0x1b)
		if i < 0 {
			return n
		}
		end := strings.IndexByte(s[i:], 'm') + 1
		n -= end
		s = s[i+end:]
	}
}

// Bytes formats a size with its unit: 4096 is "4 KiB".
func Bytes(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if n == 1 {
		return "1 byte"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[u]
}

// Count formats a number with commas: 1234567 is "1,234,567".
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Rate formats a throughput with its unit.
func Rate(bytes uint64, d time.Duration) string {
	return PerSecond(float64(bytes) / d.Seconds())
}

// PerSecond formats a throughput in bytes per second with its unit.
func PerSecond(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.2f GB/s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.0f MB/s", v/1e6)
	}
	return fmt.Sprintf("%.1f kB/s", v/1e3)
}

// Micros formats a duration in microseconds.
func Micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

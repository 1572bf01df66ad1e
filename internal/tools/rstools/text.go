package rstools

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// size is an element of the series of tests; those with all are only in the full series.
type size struct {
	n   int
	all bool
}

// series returns the powers of two from low to high and the sizes halfway between them. The sizes in short
// form the short series.
func series(low, high int, short ...int) (list []size) {
	usual := map[int]bool{}
	for _, n := range short {
		usual[n] = true
	}
	for n := low; n <= high; n *= 2 {
		list = append(list, size{n, !usual[n]})
		if n > low {
			list = append(list, size{n + n/2, true})
		}
	}
	return list
}

// sizeText formats a number of bytes as the C programs do: 64, 1.5k, 3m.
func sizeText(n int64) string {
	base, mag := int64(1), ""
	switch {
	case n >= 1<<30:
		base, mag = 1<<30, "g"
	case n >= 1<<20:
		base, mag = 1<<20, "m"
	case n >= 1<<10:
		base, mag = 1<<10, "k"
	}
	if tenth := n % base * 10 / base; n/base < 10 && tenth > 0 {
		return fmt.Sprintf("%d.%d%s", n/base, tenth, mag)
	}
	return strconv.FormatInt(n/base, 10) + mag
}

// countText formats a number as the C programs do: 100, 10k.
func countText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%db", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%dm", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%dk", n/1e3)
	}
	return strconv.FormatInt(n, 10)
}

// countFor returns the number of transfers for a size.
func countFor(n int) int {
	switch {
	case n >= 1<<20:
		return 100
	case n >= 1<<16:
		return 1000
	case n >= 1<<10:
		return 10000
	}
	return 100000
}

// result is a line of the table.
type result struct {
	name        string
	size        int
	transfers   int // as printed
	iters       int // 0: no such column
	total       int64
	took        time.Duration
	perTransfer float64 // us
}

func head(w io.Writer, iters bool) {
	fmt.Fprintf(w, "%-10s%-8s%-8s", "name", "bytes", "xfers")
	if iters {
		fmt.Fprintf(w, "%-8s", "iters")
	}
	fmt.Fprintf(w, "%-8s%8s %10s%13s\n", "total", "time", "Gb/sec", "usec/xfer")
}

func (r *result) print(w io.Writer) {
	us := float64(r.took) / 1e3
	fmt.Fprintf(w, "%-10s%-8s%-8s", r.name, sizeText(int64(r.size)), countText(int64(r.transfers)))
	if r.iters > 0 {
		fmt.Fprintf(w, "%-8s", countText(int64(r.iters)))
	}
	fmt.Fprintf(w, "%-8s%8.2fs%10.2f%11.2f\n", sizeText(r.total), us/1e6, float64(r.total)*8/(1000*us), r.perTransfer)
}

// pattern fills and checks buffers with bytes that increase by one.
type pattern struct {
	filled, checked uint8
	total           int64
}

func (p *pattern) fill(b []byte) {
	for i := range b {
		b[i] = p.filled
		p.filled++
	}
}

func (p *pattern) check(b []byte) error {
	for i := range b {
		if b[i] != p.checked {
			return fmt.Errorf("data verification failed byte %d", p.total+int64(i))
		}
		p.checked++
	}
	p.total += int64(len(b))
	return nil
}

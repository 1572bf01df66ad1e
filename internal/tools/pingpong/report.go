package pingpong

import (
	"fmt"
	"io"
	"time"
)

// report writes the result lines.
func report(w io.Writer, size, iters uint, took time.Duration) {
	bytes := int64(size) * int64(iters) * 2
	usec := float64(max(took.Microseconds(), 1))
	fmt.Fprintf(w, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, usec/1e6, float64(bytes)*8/usec)
	fmt.Fprintf(w, "%d iters in %.2f seconds = %.2f usec/iter\n", iters, usec/1e6, usec/float64(iters))
}

// page is the distance of the bytes that -c checks.
const page = 4096

// mark prepares a payload for the peer's validate. The C programs set the first byte of each page to the
// page's number modulo sizeof(char), which is 0.
func mark(payload []byte) {
	for i := 0; i < len(payload); i += page {
		payload[i] = 0
	}
}

// invalid returns the pages of a received payload that mark has not prepared.
func invalid(payload []byte) (pages []int) {
	for i := 0; i < len(payload); i += page {
		if payload[i] != 0 {
			pages = append(pages, i/page)
		}
	}
	return pages
}

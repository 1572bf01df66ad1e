package sock

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/mr"
)

// parts are the bytes of one call to send that are not sent yet: the rest of the buffer that is sent from, and the
// buffers after it.
type parts struct {
	b    []byte
	rest [][]byte
	left int // bytes of all of them
	// looked is how many of the next bytes were found to be readable.
	looked int
	// end: the byte after these is not.
	end bool
}

func partsOfOne(b []byte) parts { return parts{b: b, left: len(b)} }

func partsOf(iov [][]byte) parts {
	p := parts{rest: iov}
	for _, b := range iov {
		p.left += len(b)
	}
	return p
}

// look returns how many of the next bytes can be read, at most most: C programs pass memory that is not mapped.
func (p *parts) look(most int) int {
	most = min(most, p.left)
	b, rest, skip := p.b, p.rest, p.looked
	for p.looked < most && !p.end {
		if skip >= len(b) {
			skip -= len(b)
			b, rest = rest[0], rest[1:]
			continue
		}
		part := b[skip:min(len(b), skip+most-p.looked)]
		n := mr.Readable(part)
		p.looked += n
		skip += n
		p.end = n < len(part)
	}
	return min(most, p.looked)
}

// step makes b the next buffer that is not empty. left must not be 0.
func (p *parts) step() {
	for len(p.b) == 0 {
		p.b, p.rest = p.rest[0], p.rest[1:]
	}
}

// copyTo fills dst, for which enough bytes must be left. It reports whether it could read them.
func (p *parts) copyTo(dst []byte) (ok bool) {
	for ok = true; len(dst) > 0; {
		p.step()
		n := min(len(dst), len(p.b))
		ok = mr.TryCopy(dst[:n], p.b) && ok
		dst, p.b, p.left, p.looked = dst[n:], p.b[n:], p.left-n, p.looked-n
	}
	return ok
}

// take copies the next n bytes to spare, which grows as needed. It reports whether it could read them.
func (p *parts) take(n int, spare *[]byte) (b []byte, ok bool) {
	*spare = slices.Grow((*spare)[:0], n)[:n]
	return *spare, p.copyTo(*spare)
}

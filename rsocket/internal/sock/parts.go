package sock

import "slices"

// parts are the bytes of one call to send that are not sent yet: the rest of the buffer that is sent from, and the
// buffers after it.
type parts struct {
	b    []byte
	rest [][]byte
	left int // bytes of all of them
}

func partsOfOne(b []byte) parts { return parts{b: b, left: len(b)} }

func partsOf(iov [][]byte) parts {
	p := parts{rest: iov}
	for _, b := range iov {
		p.left += len(b)
	}
	return p
}

// step makes b the next buffer that is not empty. left must not be 0.
func (p *parts) step() {
	for len(p.b) == 0 {
		p.b, p.rest = p.rest[0], p.rest[1:]
	}
}

// copyTo fills dst, for which enough bytes must be left.
func (p *parts) copyTo(dst []byte) {
	for len(dst) > 0 {
		p.step()
		n := copy(dst, p.b)
		dst, p.b, p.left = dst[n:], p.b[n:], p.left-n
	}
}

// take returns the next n bytes. If they are in several buffers they are copied to spare, which grows as needed.
func (p *parts) take(n int, spare *[]byte) []byte {
	if n > 0 {
		p.step()
	}
	if len(p.b) < n {
		*spare = slices.Grow((*spare)[:0], n)[:n]
		p.copyTo(*spare)
		return *spare
	}
	b := p.b[:n:n]
	p.b, p.left = p.b[n:], p.left-n
	return b
}

package wire

import "unsafe"

// The register after headers and payload is that of the headers followed by as many zeros, XORed with that of the
// payload alone. So a copy of a payload can compute the payload's share of the ICRC in the same pass, before the IP
// header is known.

// SumsWhileCopying reports whether CopySum is faster than a copy followed by a CRC.
var SumsWhileCopying = wide

// LeastSum is the length of a payload from which CopySum is faster.
const LeastSum = leastWide

// CopySum copies src to dst, which does not overlap it and is at least as long, and returns the CRC register s
// after src. For SealSum, s is 0. The length is a multiple of 16 and at least LeastSum. If src changes meanwhile,
// the result is that of the stored bytes.
//
// It may be called only if SumsWhileCopying is true.
func CopySum(s uint32, dst, src []byte) uint32 {
	_ = dst[:len(src)]
	return passWide(s, unsafe.SliceData(dst), src)
}

// Sum returns the CRC register s after p, any bytes; see CopySum.
func Sum(s uint32, p []byte) uint32 {
	odd := len(p) & 15
	return update(advance(s, p[:odd]), p[odd:])
}

// SealSum is Seal for a packet of which the sum of the last n bytes, BTH excluded, is known: the register that a
// register of 0 becomes after them. With n = 0 it is Seal.
func (f Flow) SealSum(b []byte, id uint16, sum uint32, n int) {
	if n == 0 {
		f.Seal(b, id)
		return
	}
	end := len(b) - ICRCLen
	s := advance(f.start(b[:end], id), b[BTHLen:end-n])
	le.PutUint32(b[end:], ^(zeros(s, n) ^ sum))
}

// SealCopy copies body after the first head bytes of b, which hold at least a BTH, fills b up with zeros and seals
// it; see Seal. body may change meanwhile.
func (f Flow) SealCopy(b []byte, id uint16, head int, body []byte) {
	end, odd := len(b)-ICRCLen, len(body)&15
	if !SumsWhileCopying || len(body)-odd < LeastSum {
		clear(b[head+copy(b[head:end], body) : end])
		f.Seal(b, id)
		return
	}
	at := head + copy(b[head:], body[:odd])
	sum := CopySum(Sum(0, b[head:at]), b[at:], body[odd:])
	pad := b[head+len(body) : end]
	clear(pad)
	f.SealSum(b, id, Sum(sum, pad), end-head)
}

// zeros returns the register s after n zero bytes; n is at most MaxPayload and its pad.
func zeros(s uint32, n int) uint32 {
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			s = zeroRuns[k].after(s)
		}
	}
	return s
}

// zeroRun holds, for each value of each byte of a register, its contribution after a run of zeros.
type zeroRun [4][256]uint32

func (z *zeroRun) after(s uint32) uint32 {
	return z[0][s&0xFF] ^ z[1][s>>8&0xFF] ^ z[2][s>>16&0xFF] ^ z[3][s>>24]
}

// zeroRuns[k] is for 2^k zero bytes.
var zeroRuns = func() *[13]zeroRun {
	runs := new([13]zeroRun)
	for k := range runs {
		for i := range 4 {
			for bit := range 8 {
				at := 1 << bit
				v := uint32(at) << (8 * i)
				if k == 0 {
					v = v>>8 ^ slicing[0][byte(v)]
				} else {
					v = runs[k-1].after(runs[k-1].after(v))
				}
				for low := range at { // the contribution of two bits is the sum of both
					runs[k][i][at|low] = v ^ runs[k][i][low]
				}
			}
		}
	}
	return runs
}()

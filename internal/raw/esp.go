package raw

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/secret"
)

// ESPMode is how an ESP action changes frames; the values are those of enum ibv_flow_action_esp_flags.
type ESPMode uint32

// The flags.
const (
	ESPFullOffload ESPMode = 1 << 0 // adds and removes ESP headers; otherwise they are in the frames
	ESPTransport   ESPMode = 1 << 1 // otherwise tunnel mode
	ESPEncrypt     ESPMode = 1 << 2 // otherwise decrypt
	ESPNewWindow   ESPMode = 1 << 3
	espChangeable          = ESPNewWindow
	espHeader              = 8 // SPI and sequence number
	espIV                  = 8
	espTrailer             = 2 // pad length and next header
	espAlign               = 4
	gcmTag                 = 16
	udpHeader              = 8
	maxIPPacket            = 1<<16 - 1
	maxESPOverhead         = 40 + udpHeader + espHeader + espIV + espAlign + espTrailer + gcmTag
	defaultTTL             = 64
)

// ESPEncap is the outer headers of tunnel mode, and a UDP header around ESP.
type ESPEncap struct {
	IP               uint8 // 4 or 6; 0: none
	Src, Dst         [16]byte
	Class, TTL       uint8
	Flags            uint8  // of IPv4: flagDF
	FlowLabel        uint32 // of IPv6
	UDP              bool
	SrcPort, DstPort uint16
}

// ESPKey is the key material of AES-GCM (RFC 4106).
type ESPKey struct {
	Key    []byte // 16, 24 or 32 bytes
	Salt   [4]byte
	IV     uint64 // of the next packet
	ICVLen int    // 8, 12 or 16
}

// ESP is a security association that rules apply to frames (RFC 4303). The device's mu guards it, except that it may
// be set up before rules use it.
type ESP struct {
	Mode   ESPMode
	SPI    uint32
	TFCPad int
	Limit  uint64 // packets; 0: no limit
	Encap  ESPEncap
	ESN    bool // sequence numbers have 64 bits

	window window // its top is the number of the last packet sent or the highest received
	used   uint64 // packets, for Limit
	aead   cipher.AEAD
	key    ESPKey
	check  []byte // room for the comparison of short ICVs
	nonce  [4 + espIV]byte
	aad    [12]byte
}

// SetKey sets the key material for a mode. The IVs of a key that is set again continue, since none may be used twice.
func (e *ESP) SetKey(mode ESPMode, k *ESPKey) error {
	block, err := aes.NewCipher(k.Key)
	if err != nil {
		return err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	same := e.aead != nil && e.key.Salt == k.Salt && subtle.ConstantTimeCompare(e.key.Key, k.Key) == 1
	iv := k.IV
	switch {
	case same:
		iv = e.key.IV
	case mode&ESPFullOffload == 0:
		iv = secret.Uint64() // several devices may encrypt with the key
	}
	e.aead, e.key = aead, ESPKey{bytes.Clone(k.Key), k.Salt, iv, k.ICVLen}
	copy(e.nonce[:], k.Salt[:])
	return nil
}

// SetSeq sets the number of the last packet, low and high half.
func (e *ESP) SetSeq(low, high uint32) {
	e.window.top = uint64(high)<<32 | uint64(low)
	e.window.resize(uint32(e.window.size))
}

// Seq returns the number of the last packet.
func (e *ESP) Seq() (low, high uint32) { return uint32(e.window.top), uint32(e.window.top >> 32) }

// SetReplay sets the number of sequence numbers of the window; 0: no protection.
func (e *ESP) SetReplay(size uint32) { e.window.resize(size) }

// ResetLimit makes Limit count from 0.
func (e *ESP) ResetLimit() { e.used = 0 }

// espResult says why a frame was refused.
type espResult int

const (
	espDone espResult = iota
	espRefused
	espReplayed
)

// apply appends the frame that the action makes of b to out.
func (e *ESP) apply(out, b []byte, h *Headers) ([]byte, espResult) {
	s := &h.Outer
	if s.IP == 0 || !s.whole(b) || e.Limit > 0 && e.used >= e.Limit {
		return out, espRefused
	}
	var result espResult
	switch e.Mode & (ESPFullOffload | ESPEncrypt) {
	case ESPFullOffload | ESPEncrypt:
		out, result = e.encapsulate(out, b, s)
	case ESPFullOffload:
		out, result = e.decapsulate(out, b, s)
	case ESPEncrypt:
		out, result = e.encryptInline(out, b, s)
	default:
		out, result = e.decryptInline(out, b, s)
	}
	if result == espDone {
		e.used++
	}
	return out, result
}

// upper returns the place of the payload above IP, and the place of the byte that holds its protocol.
func (s *Stack) upper(b []byte) (at, proto int, ok bool) {
	if s.Frag {
		return 0, 0, false
	}
	if s.IP == 4 {
		return s.L3 + int(b[s.L3]&15)*4, s.L3 + 9, true
	}
	at, proto = s.L3+40, s.L3+6
	for range maxExts {
		if next := b[proto]; next == protoESP || next == protoAH {
			break
		}
		n := extLen(b[proto], b[at:s.End])
		if n < 0 {
			break
		}
		at, proto = at+n, at
	}
	return at, proto, true
}

// encapsulate adds ESP to an IP packet, in full offload mode.
func (e *ESP) encapsulate(out, b []byte, s *Stack) ([]byte, espResult) {
	if e.window.top == 1<<32-1 && !e.ESN || e.window.top == 1<<64-1 {
		return out, espRefused // sequence numbers must not repeat
	}
	var next byte
	l3, payload := len(out)+s.L3, b[s.L3:s.End]
	if e.Mode&ESPTransport != 0 {
		at, proto, ok := s.upper(b)
		if !ok {
			return out, espRefused
		}
		next, payload = b[proto], b[at:s.End]
		start := len(out)
		out = append(out, b[:at]...)
		out[start+proto] = e.protocol()
	} else {
		next = protoIPv4
		if s.IP == 6 {
			next = protoIPv6
		}
		out = e.outer(append(out, b[:s.L3]...))
	}
	if e.Encap.UDP {
		out = binary.BigEndian.AppendUint16(out, e.Encap.SrcPort)
		out = binary.BigEndian.AppendUint16(out, e.Encap.DstPort)
		out = append(out, 0, 0, 0, 0)
	}
	e.window.top++
	out = binary.BigEndian.AppendUint32(out, e.SPI)
	out = binary.BigEndian.AppendUint32(out, uint32(e.window.top))
	out = e.seal(out, payload, next, uint32(e.window.top>>32))
	return out, finishIP(out, l3, e.Encap.UDP)
}

// protocol returns the protocol above IP.
func (e *ESP) protocol() byte {
	if e.Encap.UDP {
		return protoUDP
	}
	return protoESP
}

// outer appends the outer IP header behind the Ethernet header.
func (e *ESP) outer(out []byte) []byte {
	c, etherType := &e.Encap, out[len(out)-2:]
	ttl := c.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	if c.IP == 4 {
		binary.BigEndian.PutUint16(etherType, typeIPv4)
		id := uint16(e.window.top + 1)
		frag := uint16(c.Flags&flagDF) << 13
		out = append(out, 0x45, c.Class, 0, 0)
		out = binary.BigEndian.AppendUint16(out, id)
		out = binary.BigEndian.AppendUint16(out, frag)
		out = append(out, ttl, e.protocol(), 0, 0)
		out = append(out, c.Src[:4]...)
		return append(out, c.Dst[:4]...)
	}
	binary.BigEndian.PutUint16(etherType, typeIPv6)
	out = binary.BigEndian.AppendUint32(out, 6<<28|uint32(c.Class)<<20|c.FlowLabel)
	out = append(out, 0, 0, e.protocol(), ttl)
	out = append(out, c.Src[:]...)
	return append(out, c.Dst[:]...)
}

// finishIP sets the lengths and checksums of the IP packet at l3, which ends with the frame.
func finishIP(out []byte, l3 int, udp bool) espResult {
	n := len(out) - l3
	if out[l3]>>4 == 4 {
		if n > maxIPPacket {
			return espRefused
		}
		binary.BigEndian.PutUint16(out[l3+2:], uint16(n))
	} else {
		if n-40 > maxIPPacket {
			return espRefused
		}
		binary.BigEndian.PutUint16(out[l3+4:], uint16(n-40))
	}
	var h Headers
	Parse(out, &h)
	s := &h.Outer
	if s.L3 != l3 {
		return espRefused
	}
	if udp && s.L4 >= 0 {
		binary.BigEndian.PutUint16(out[s.L4+4:], uint16(s.End-s.L4))
	}
	if s.IP == 4 { // RFC 3948: without a checksum of UDP
		header := out[l3 : l3+int(out[l3]&15)*4]
		binary.BigEndian.PutUint16(header[10:], 0)
		binary.BigEndian.PutUint16(header[10:], ^fold(sum(0, header)))
	} else if udp {
		FillChecksums(out, &h)
	}
	return espDone
}

// prepare sets the nonce and the additional data of a packet, whose ESP header is at the end of out.
func (e *ESP) prepare(header []byte, iv []byte, high uint32) []byte {
	copy(e.nonce[4:], iv)
	copy(e.aad[:4], header[:4])
	if !e.ESN {
		copy(e.aad[4:], header[4:8])
		return e.aad[:8]
	}
	binary.BigEndian.PutUint32(e.aad[4:], high)
	copy(e.aad[8:], header[4:8])
	return e.aad[:12]
}

// seal appends IV, ciphertext and ICV to out, which ends with the ESP header.
func (e *ESP) seal(out, payload []byte, next byte, high uint32) []byte {
	header := len(out) - espHeader
	out = binary.BigEndian.AppendUint64(out, e.key.IV)
	e.key.IV++
	at := len(out)
	out = append(out, payload...)
	for range e.TFCPad {
		out = append(out, 0)
	}
	pad := -(len(out) - at + espTrailer) & (espAlign - 1)
	for i := range pad {
		out = append(out, byte(i+1))
	}
	out = append(out, byte(pad), next)
	aad := e.prepare(out[header:], out[at-espIV:at], high)
	out = e.aead.Seal(out[:at], e.nonce[:], out[at:], aad)
	return out[:len(out)-gcmTag+e.key.ICVLen]
}

// open appends the plaintext of the ESP packet, ESP header to ICV, to out. Its second result is the next header; ok
// is false if the packet is malformed or not authentic.
func (e *ESP) open(out, packet []byte, high uint32) (_ []byte, next byte, ok bool) {
	icv := e.key.ICVLen
	if len(packet) < espHeader+espIV+espTrailer+icv {
		return out, 0, false
	}
	at := len(out)
	text := packet[espHeader+espIV:]
	aad := e.prepare(packet, packet[espHeader:], high)
	if icv == gcmTag {
		opened, err := e.aead.Open(out, e.nonce[:], text, aad)
		if err != nil {
			return out, 0, false
		}
		out = opened
	} else if out, ok = e.openShort(out, text[:len(text)-icv], text[len(text)-icv:], aad); !ok {
		return out[:at], 0, false
	}
	plain := out[at:]
	pad, n := int(plain[len(plain)-2]), len(plain)-espTrailer
	next = plain[len(plain)-1]
	if pad > n {
		return out[:at], 0, false
	}
	for i, c := range plain[n-pad : n] {
		if c != byte(i+1) {
			return out[:at], 0, false
		}
	}
	return out[:at+n-pad], next, true
}

// openShort decrypts text and compares a truncated ICV, which package cipher does not: GCM encrypts by a key stream,
// so that encrypting the ciphertext decrypts it, and encrypting the result again gives its whole ICV.
func (e *ESP) openShort(out, text, icv, aad []byte) ([]byte, bool) {
	at := len(out)
	out = e.aead.Seal(out, e.nonce[:], text, aad)
	out = out[:at+len(text)]
	e.check = e.aead.Seal(e.check[:0], e.nonce[:], out[at:], aad)
	return out, subtle.ConstantTimeCompare(e.check[len(text):][:len(icv)], icv) == 1
}

// espAt returns the place of the ESP header in a frame.
func (e *ESP) espAt(b []byte, s *Stack) (at int, ok bool) {
	switch {
	case s.L4 < 0:
		return 0, false
	case !e.Encap.UDP:
		return s.L4, s.Proto == protoESP
	}
	at = s.L4 + udpHeader
	return at, s.Proto == protoUDP && s.End >= at+espHeader &&
		binary.BigEndian.Uint16(b[s.L4+2:]) == e.Encap.DstPort && binary.BigEndian.Uint32(b[at:]) != 0
}

// decapsulate removes ESP from an IP packet, in full offload mode.
func (e *ESP) decapsulate(out, b []byte, s *Stack) ([]byte, espResult) {
	at, ok := e.espAt(b, s)
	if !ok || binary.BigEndian.Uint32(b[at:]) != e.SPI {
		return out, espRefused
	}
	seq := uint64(binary.BigEndian.Uint32(b[at+4:]))
	if e.ESN {
		if seq, ok = e.window.full(uint32(seq)); !ok {
			return out, espReplayed
		}
	}
	if !e.window.fits(seq) {
		return out, espReplayed
	}
	l3, keep := len(out)+s.L3, s.L3
	proto := 0
	if e.Mode&ESPTransport != 0 {
		keep, proto, _ = s.upper(b)
	}
	out = append(out, b[:keep]...)
	start := len(out)
	out, next, ok := e.open(out, b[at:s.End], uint32(seq>>32))
	if !ok {
		return out, espRefused
	}
	e.window.take(seq)
	if e.Mode&ESPTransport != 0 {
		if next == protoNoNext {
			return out, espRefused // a dummy packet
		}
		out[l3-s.L3+proto] = next
		return out, finishIP(out, l3, false)
	}
	n, etherType := innerLen(out[start:], next)
	if n == 0 {
		return out, espRefused
	}
	binary.BigEndian.PutUint16(out[start-2:], etherType)
	return out[:start+n], espDone
}

// innerLen returns the length and the EtherType of the IP packet in p, behind which there may be padding; 0 if there
// is none.
func innerLen(p []byte, proto byte) (n int, etherType uint16) {
	switch {
	case proto == protoIPv4 && len(p) >= 20 && p[0]>>4 == 4:
		n, etherType = int(binary.BigEndian.Uint16(p[2:])), typeIPv4
		if n < 20 {
			return 0, 0
		}
	case proto == protoIPv6 && len(p) >= 40 && p[0]>>4 == 6:
		n, etherType = 40+int(binary.BigEndian.Uint16(p[4:])), typeIPv6
	}
	if n > len(p) {
		return 0, 0
	}
	return n, etherType
}

// highHalf returns the high half of the sequence number of a packet, in inline mode.
func (e *ESP) highHalf(low uint32) uint32 {
	_, high := e.Seq()
	if e.Mode&ESPNewWindow != 0 && low < 1<<31 {
		high++
	}
	return high
}

// encryptInline encrypts the payload of an ESP packet, and appends trailer and ICV.
func (e *ESP) encryptInline(out, b []byte, s *Stack) ([]byte, espResult) {
	if s.L4 < 0 || s.Proto != protoESP || s.End < s.L4+espHeader+espIV+1 {
		return out, espRefused
	}
	l3, payload := len(out)+s.L3, b[s.L4+espHeader+espIV:s.End]
	next := byte(protoIPv4)
	switch payload[0] >> 4 {
	case 4:
	case 6:
		next = protoIPv6
	default:
		return out, espRefused
	}
	out = append(out, b[:s.L4+espHeader]...)
	out = e.seal(out, payload, next, e.highHalf(binary.BigEndian.Uint32(b[s.L4+4:])))
	return out, finishIP(out, l3, false)
}

// decryptInline decrypts the payload of an ESP packet, and removes trailer and ICV.
func (e *ESP) decryptInline(out, b []byte, s *Stack) ([]byte, espResult) {
	if s.L4 < 0 || s.Proto != protoESP || s.End < s.L4+espHeader+espIV {
		return out, espRefused
	}
	l3 := len(out) + s.L3
	out = append(out, b[:s.L4+espHeader+espIV]...)
	out, _, ok := e.open(out, b[s.L4:s.End], e.highHalf(binary.BigEndian.Uint32(b[s.L4+4:])))
	if !ok {
		return out, espRefused
	}
	return out, finishIP(out, l3, false)
}

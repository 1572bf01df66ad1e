package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/prefetch"
)

// Line is the alignment of records in bytes, the size of a cache line.
const Line = 64

// wordLen is the length of the word before the data of a record.
const wordLen = 8

// MinSize is the size in bytes of the smallest ring.
const MinSize = 4096

// ErrCorrupt reports that the other side has written a value that no correct program writes.
var ErrCorrupt = errors.New("ring: the other side has written an invalid value")

// Kind is the kind of a record, chosen by the user: 1 to MaxKind.
type Kind uint8

// MaxKind is the largest kind; the next one is reserved for the ring.
const MaxKind Kind = 254

const skip = MaxKind + 1

// MaxAux is the largest value that a record carries beside its data.
const MaxAux = 1<<24 - 1

// A word is n | kind<<32 | aux<<40.
func makeWord(n int, k Kind, aux uint32) uint64 {
	return uint64(uint32(n)) | uint64(k)<<32 | uint64(aux&MaxAux)<<40
}

// span returns the space in bytes of a record of n bytes.
func span(n int) uint64 { return (uint64(n) + wordLen + Line - 1) &^ (Line - 1) }

// checkSize reports, by a nil error, whether mem can be a ring.
func checkSize(mem []byte) error {
	n := len(mem)
	if n < MinSize || n&(n-1) != 0 {
		return fmt.Errorf("ring: %d bytes: must be a power of two, at least %d: %w", n, MinSize, syscall.EINVAL)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%Line != 0 {
		return fmt.Errorf("ring: the memory must begin at a multiple of %d: %w", Line, syscall.EINVAL)
	}
	return nil
}

// wordAt returns the word at offset off, a multiple of Line, of a ring's memory.
func wordAt(base unsafe.Pointer, off uint64) *uint64 { return (*uint64)(unsafe.Add(base, off)) }

// A Producer appends records to a ring. It is not safe for concurrent use.
type Producer struct {
	mem  []byte
	base unsafe.Pointer
	mask uint64
	head *atomic.Uint64 // the consumer's

	tail      uint64 // position of the next record; positions are not reduced to the ring's size
	last      uint64 // position of the last record
	lastLen   int    // its length in bytes
	zeroed    uint64 // the first words of the lines before it that are not before tail are 0
	published uint64 // the records before it are visible to the consumer
	first     uint64 // the word of the record at published, if that is before tail
	freed     uint64 // the consumer had finished the records before it when head was read last
	err       error
}

// NewProducer makes a producer over mem, which is zero, a power of two long, and written only by the producer. head
// is the consumer's word.
func NewProducer(mem []byte, head *atomic.Uint64) (*Producer, error) {
	if err := checkSize(mem); err != nil {
		return nil, err
	}
	return &Producer{mem: mem, base: unsafe.Pointer(unsafe.SliceData(mem)), mask: uint64(len(mem) - 1), head: head,
		zeroed: uint64(len(mem))}, nil
}

// MaxRecord is the length of the longest record in bytes: a quarter of the ring, so that the producer can write the
// next records while the consumer reads one.
func (p *Producer) MaxRecord() int { return len(p.mem)/4 - Line }

// Put appends a record of n bytes and returns them, to be written before Publish; their content is undefined. It
// returns nil if there is no room now, or if Err is not nil. n is at most MaxRecord.
func (p *Producer) Put(k Kind, aux uint32, n int) []byte {
	if uint(n) > Line-wordLen {
		return p.putLines(k, aux, n)
	}
	// A line fits before the end of the memory, if there is room.
	if p.tail+2*Line-p.freed > p.mask+1 && !p.room(Line) {
		return nil
	}
	line := unsafe.Add(p.base, p.tail&p.mask)
	if word := makeWord(n, k, aux); p.tail == p.published {
		p.first = word
	} else {
		*(*uint64)(line) = word
	}
	p.last, p.lastLen = p.tail, n
	p.tail += Line
	prefetch.ForWrite(unsafe.Add(p.base, (p.tail+ahead)&p.mask))
	return unsafe.Slice((*byte)(unsafe.Add(line, wordLen)), n)
}

// putLines is Put for a record of several lines.
func (p *Producer) putLines(k Kind, aux uint32, n int) []byte {
	need := span(n)
	at := p.tail & p.mask
	fill := uint64(0)
	if rest := uint64(len(p.mem)) - at; need > rest {
		fill = rest
	}
	if !p.room(fill + need) {
		return nil
	}
	if fill > 0 {
		p.append(makeWord(0, skip, 0), fill)
		at = 0
	}
	p.last, p.lastLen = p.tail, n
	p.append(makeWord(n, k, aux), need)
	return p.data(at+wordLen, n)
}

// data returns n bytes of the memory from offset at on, which are the data of a record of the producer.
func (p *Producer) data(at uint64, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(p.base, at)), n)
}

// Extend appends n bytes to the last record, which gets another kind and aux, and returns them as Put does. It
// returns nil if the record has been published, or if the bytes need another line.
func (p *Producer) Extend(k Kind, aux uint32, n int) []byte {
	size := p.lastLen + n
	if p.tail == p.published || span(size) != p.tail-p.last {
		return nil
	}
	word := makeWord(size, k, aux)
	from := p.lastLen
	p.lastLen = size
	if p.last == p.published {
		p.first = word
	} else {
		*wordAt(p.base, p.last&p.mask) = word
	}
	return p.data(p.last&p.mask+wordLen+uint64(from), n)
}

// LastLen returns the length of the last record in bytes, 0 if it has been published.
func (p *Producer) LastLen() int {
	if p.tail == p.published {
		return 0
	}
	return p.lastLen
}

// append writes the word of the record at tail; that of the first unpublished record is kept until Publish.
func (p *Producer) append(word, need uint64) {
	if p.tail == p.published {
		p.first = word
	} else {
		*wordAt(p.base, p.tail&p.mask) = word
	}
	p.tail += need
}

// ahead is the distance of the line that is fetched when a record of one line is put. The consumer's cache has it,
// from the last round. A store waits until the line has come from there, and later stores wait for that one.
const ahead = 4 * Line

// room reports whether need bytes are free, followed by a line for the word after the last record.
func (p *Producer) room(need uint64) bool {
	if p.tail+need+Line-p.freed <= p.mask+1 {
		return true
	}
	if p.err != nil || !p.look() {
		return false
	}
	return p.tail+need+Line-p.freed <= uint64(len(p.mem))
}

// look reads the head, and reports whether it is valid.
func (p *Producer) look() bool {
	head := p.head.Load()
	if head-p.freed > p.published-p.freed || head%Line != 0 {
		p.err = ErrCorrupt
		return false
	}
	p.freed = head
	return true
}

// Waits reports whether the record at a position of the producer, which Put has returned, waits for Publish.
func (p *Producer) Waits(position uint64) bool { return position-p.published < p.tail-p.published }

// Position returns the position of the last record, for Waits.
func (p *Producer) Position() uint64 { return p.last }

// Unpublished returns the number of bytes of records that wait for Publish.
func (p *Producer) Unpublished() int { return int(p.tail - p.published) }

// Publish makes the records visible to the consumer.
func (p *Producer) Publish() {
	if p.tail == p.published {
		return
	}
	if p.zeroed <= p.tail { // before the consumer can reach it
		p.zero(p.tail)
	}
	at := wordAt(p.base, p.published&p.mask)
	p.published = p.tail
	atomic.StoreUint64(at, p.first)
	// The line of the word that the next Publish needs may be in the consumer's cache, from the last round. Fetching it
	// takes as long as a record does to arrive, so it is done now.
	if next := p.tail + Line; p.zeroed <= next && next+Line-p.freed <= uint64(len(p.mem)) {
		p.zero(next)
	}
}

// zero writes 0 to the first word of the line at a position.
func (p *Producer) zero(position uint64) {
	*wordAt(p.base, position&p.mask) = 0
	p.zeroed = position + Line
}

// Freed returns the consumer's position in bytes since the start. It shows whether the consumer makes progress.
func (p *Producer) Freed() uint64 {
	if p.err == nil {
		p.look()
	}
	return p.freed
}

// Unread returns the number of bytes of published records that the consumer has not finished.
func (p *Producer) Unread() int { return int(p.published - p.Freed()) }

// Empty reports whether the consumer has finished all published records.
func (p *Producer) Empty() bool { return p.Freed() == p.published }

// Err returns ErrCorrupt once the consumer has written an invalid value.
func (p *Producer) Err() error { return p.err }

// A Record is one record. Its data lies in the ring: the producer may change it at any time, so a reader that
// relies on it copies it first.
type Record struct {
	Kind Kind
	Aux  uint32
	Data []byte
}

// A Consumer takes records from a ring. It is not safe for concurrent use.
type Consumer struct {
	mem  []byte
	base unsafe.Pointer
	mask uint64
	head *atomic.Uint64

	next  uint64 // position of the next record
	freed uint64 // the value of head
	err   error
}

// NewConsumer makes a consumer of the records in mem, which the producer writes. head is the consumer's word, 0 at
// first, which the producer reads.
func NewConsumer(mem []byte, head *atomic.Uint64) (*Consumer, error) {
	if err := checkSize(mem); err != nil {
		return nil, err
	}
	return &Consumer{mem: mem, base: unsafe.Pointer(unsafe.SliceData(mem)), mask: uint64(len(mem) - 1), head: head}, nil
}

// Ready reports whether Next would return a record or an error.
func (c *Consumer) Ready() bool {
	return c.err == nil && atomic.LoadUint64(wordAt(c.base, c.next&c.mask)) != 0
}

// Position returns the position of the next record, for ReadyAt.
func (c *Consumer) Position() uint64 { return c.next }

// ReadyAt reports whether there is a record at a position in the memory of a ring, for goroutines other than the
// consumer.
func ReadyAt(mem []byte, position uint64) bool {
	return atomic.LoadUint64(wordAt(unsafe.Pointer(unsafe.SliceData(mem)), position&uint64(len(mem)-1)&^(Line-1))) != 0
}

// Next returns the next record. If ok is false there is none for now, or for ever if Err is not nil. More records
// than fit into the ring without a Release are an error.
func (c *Consumer) Next() (r Record, ok bool) {
	for c.err == nil {
		at := c.next & c.mask
		word := atomic.LoadUint64(wordAt(c.base, at)) // the only read of it
		if word == 0 {
			return Record{}, false
		}
		n, kind := uint64(uint32(word)), Kind(word>>32)
		if n <= Line-wordLen && kind-1 < skip-1 && c.next+Line-c.freed <= c.mask+1 { // one line, which is in the memory
			c.next += Line
			data := unsafe.Slice((*byte)(unsafe.Add(c.base, at+wordLen)), n)
			return Record{Kind: kind, Aux: uint32(word >> 40), Data: data}, true
		}
		rest := uint64(len(c.mem)) - at
		need := (n + wordLen + Line - 1) &^ (Line - 1)
		if kind == skip {
			need = rest
		}
		switch {
		case kind == 0, need > rest, kind == skip && n != 0, c.next+need-c.freed > uint64(len(c.mem)):
			c.err = ErrCorrupt
			return Record{}, false
		}
		c.next += need
		if kind == skip {
			continue
		}
		end := at + wordLen + n
		return Record{Kind: kind, Aux: uint32(word >> 40), Data: c.mem[at+wordLen : end : end]}, true
	}
	return Record{}, false
}

// Due reports whether Release stores the head in any case.
func (c *Consumer) Due() bool { return c.next-c.freed > uint64(len(c.mem))/8 }

// Release returns the space of the records that Next has returned to the producer. It stores the head only now and
// then, since each store costs both sides a cache line, and at once if now is true.
func (c *Consumer) Release(now bool) {
	if c.Due() || now && c.next != c.freed {
		c.freed = c.next
		c.head.Store(c.next)
	}
}

// Err returns ErrCorrupt once the producer has written an invalid value.
func (c *Consumer) Err() error { return c.err }

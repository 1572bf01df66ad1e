package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Line is the alignment of records, the size of a cache line in bytes.
const Line = 64

// wordLen is the length of the word before the data of a record.
const wordLen = 8

// MinSize is the size in bytes of the smallest ring.
const MinSize = 4096

// ErrCorrupt says that the other side has written what no correct program writes.
var ErrCorrupt = errors.New("ring: the other side has written nonsense")

// Kind of a record, given by the user: 1 to MaxKind.
type Kind uint8

// MaxKind is the largest kind; the one above it is the ring's own.
const MaxKind Kind = 254

const skip = MaxKind + 1

// MaxAux is the largest value that a record carries beside its data.
const MaxAux = 1<<24 - 1

// A word is n | kind<<32 | aux<<40.
func makeWord(n int, k Kind, aux uint32) uint64 {
	return uint64(uint32(n)) | uint64(k)<<32 | uint64(aux&MaxAux)<<40
}

// span is the space that a record of n bytes takes.
func span(n int) uint64 { return (uint64(n) + wordLen + Line - 1) &^ (Line - 1) }

// checkSize tells whether mem can be a ring.
func checkSize(mem []byte) error {
	n := len(mem)
	if n < MinSize || n&(n-1) != 0 {
		return fmt.Errorf("ring: %d bytes: a power of two from %d on is needed: %w", n, MinSize, syscall.EINVAL)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%Line != 0 {
		return fmt.Errorf("ring: the memory does not begin at a multiple of %d: %w", Line, syscall.EINVAL)
	}
	return nil
}

// wordAt is the word at offset off, which is a multiple of Line, of a ring's memory.
func wordAt(base unsafe.Pointer, off uint64) *uint64 { return (*uint64)(unsafe.Add(base, off)) }

// A Producer appends records to a ring. One goroutine at a time uses it.
type Producer struct {
	mem  []byte
	base unsafe.Pointer
	mask uint64
	head *atomic.Uint64 // the consumer's

	tail      uint64 // where the next record goes; positions run freely
	published uint64 // the consumer sees everything before it
	first     uint64 // the word of the record at published, if that is before tail
	freed     uint64 // the consumer has done with everything before it, as far as we looked
	err       error
}

// NewProducer makes a producer over mem, which is zero, a power of two long, and written by nobody else. head is the consumer's word.
func NewProducer(mem []byte, head *atomic.Uint64) (*Producer, error) {
	if err := checkSize(mem); err != nil {
		return nil, err
	}
	return &Producer{mem: mem, base: unsafe.Pointer(unsafe.SliceData(mem)), mask: uint64(len(mem) - 1), head: head}, nil
}

// MaxRecord is the length of the longest record: a quarter of the ring, so that the consumer can be at work on one while
// the next ones are made.
func (p *Producer) MaxRecord() int { return len(p.mem)/4 - Line }

// Put appends a record of n bytes and returns them, to be filled in before Publish; their content is undefined.
// It returns nil if there is no room now, or if Err is not nil. n is at most MaxRecord.
func (p *Producer) Put(k Kind, aux uint32, n int) []byte {
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
	p.append(makeWord(n, k, aux), need)
	return p.mem[at+wordLen : at+wordLen+uint64(n) : at+wordLen+uint64(n)]
}

// append writes the word of a record at tail, or keeps it until Publish if it is the first one.
func (p *Producer) append(word, need uint64) {
	if p.tail == p.published {
		p.first = word
	} else {
		*wordAt(p.base, p.tail&p.mask) = word
	}
	p.tail += need
}

// room tells whether need bytes are free, and behind them the line for the word that ends the records.
func (p *Producer) room(need uint64) bool {
	if p.tail+need+Line-p.freed <= uint64(len(p.mem)) {
		return true
	}
	if p.err != nil || !p.look() {
		return false
	}
	return p.tail+need+Line-p.freed <= uint64(len(p.mem))
}

// look reads the head, and tells whether it is a possible one.
func (p *Producer) look() bool {
	head := p.head.Load()
	if head-p.freed > p.published-p.freed || head%Line != 0 {
		p.err = ErrCorrupt
		return false
	}
	p.freed = head
	return true
}

// Unpublished is how many bytes of records wait for Publish.
func (p *Producer) Unpublished() int { return int(p.tail - p.published) }

// Publish lets the consumer see what was put.
func (p *Producer) Publish() {
	if p.tail == p.published {
		return
	}
	*wordAt(p.base, p.tail&p.mask) = 0 // before the consumer can come there
	at := wordAt(p.base, p.published&p.mask)
	p.published = p.tail
	atomic.StoreUint64(at, p.first)
}

// Freed is how far the consumer has come, in bytes from the beginning of time. It only serves to see whether it moves.
func (p *Producer) Freed() uint64 {
	if p.err == nil {
		p.look()
	}
	return p.freed
}

// Empty tells whether the consumer has done with everything that was published.
func (p *Producer) Empty() bool { return p.Freed() == p.published }

// Err is ErrCorrupt once the consumer has written nonsense.
func (p *Producer) Err() error { return p.err }

// A Record is one record. Its data lies in the ring: the producer may change it at any time, so whoever
// must rely on it takes a copy first.
type Record struct {
	Kind Kind
	Aux  uint32
	Data []byte
}

// A Consumer takes records from a ring. One goroutine at a time uses it.
type Consumer struct {
	mem  []byte
	base unsafe.Pointer
	mask uint64
	head *atomic.Uint64

	next  uint64 // the next record
	freed uint64 // what head says
	err   error
}

// NewConsumer makes a consumer of the records in mem, which the producer writes. head is the consumer's word, 0 at first, which
// the producer reads.
func NewConsumer(mem []byte, head *atomic.Uint64) (*Consumer, error) {
	if err := checkSize(mem); err != nil {
		return nil, err
	}
	return &Consumer{mem: mem, base: unsafe.Pointer(unsafe.SliceData(mem)), mask: uint64(len(mem) - 1), head: head}, nil
}

// Ready tells whether Next would find something, a record or an error.
func (c *Consumer) Ready() bool {
	return c.err == nil && atomic.LoadUint64(wordAt(c.base, c.next&c.mask)) != 0
}

// Position is where the next record will be, for ReadyAt.
func (c *Consumer) Position() uint64 { return c.next }

// ReadyAt tells whether there is a record at a position in the memory of a ring, for those who are not its consumer.
func ReadyAt(mem []byte, position uint64) bool {
	return atomic.LoadUint64(wordAt(unsafe.Pointer(unsafe.SliceData(mem)), position&uint64(len(mem)-1)&^(Line-1))) != 0
}

// Next takes the next record. There is none, for now, when ok is false; for ever, when Err is not nil. A ring's worth of
// records without a Release is nonsense, and an error.
func (c *Consumer) Next() (r Record, ok bool) {
	for c.err == nil {
		at := c.next & c.mask
		word := atomic.LoadUint64(wordAt(c.base, at)) // the only look at it
		if word == 0 {
			return Record{}, false
		}
		n, kind := uint64(uint32(word)), Kind(word>>32)
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

// Release gives the space of the records that Next has returned back to the producer. It tells it now and then only,
// since each time costs both of them a cache line, and at once if now is true.
func (c *Consumer) Release(now bool) {
	if n := c.next - c.freed; n > uint64(len(c.mem))/8 || now && n > 0 {
		c.freed = c.next
		c.head.Store(c.next)
	}
}

// Err is ErrCorrupt once the producer has written nonsense.
func (c *Consumer) Err() error { return c.err }

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The table is memory that clients READ, so it has no pointers. A key lies in one of the `near` slots from the one that
// its hash names on: one READ of these slots finds it or shows that it does not exist.
//
//	offset  bytes  a slot, numbers little-endian
//	0       8      version: odd while the server writes the slot, and greater after each write
//	8       8      checksum of the version and of the rest
//	16      1      length of the key, 0 for a free slot
//	17      1      0
//	18      2      length of the value
//	20             key, then value
//
// A READ is not atomic: the server may write a slot while the adapter reads it. The reader detects that by the odd
// version or by the checksum, which covers the version, and reads again.
const (
	slotSize = 256
	bodyAt   = 16
	dataAt   = 20
	near     = 8
	maxKey   = 64
	maxValue = slotSize - dataAt - maxKey
)

// Errors of the store.
var (
	errNotFound = errors.New("no such key")
	errFull     = errors.New("no free slot near the key's hash: use a larger table")
	errVersion  = errors.New("the key has another version")
	errTorn     = errors.New("the slot was written during the read")
	errSize     = fmt.Errorf("must be a key of 1 to %d bytes and a value of at most %d bytes", maxKey, maxValue)
)

// anyVersion is the condition of a write that has none. noVersion requires that the key does not exist.
const (
	anyVersion = ^uint64(0)
	noVersion  = 0
)

var polynomial = crc64.MakeTable(crc64.ECMA)

// home returns the first slot of a key in a table of n slots, a power of 2.
func home(key string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return int(h.Sum64() & uint64(n-1))
}

// checksum is that of a slot with a version.
func checksum(version uint64, body []byte) uint64 {
	var v [8]byte
	binary.LittleEndian.PutUint64(v[:], version)
	return crc64.Update(crc64.Update(0, polynomial, v[:]), polynomial, body)
}

// parse returns the content of a copy of a slot, with an empty key if the slot is free. errTorn: read it again. The
// copy may hold anything.
func parse(slot []byte) (key, value []byte, version uint64, err error) {
	version = binary.LittleEndian.Uint64(slot)
	body := slot[bodyAt:slotSize]
	k, v := int(body[0]), int(binary.LittleEndian.Uint16(body[2:]))
	if version%2 != 0 || binary.LittleEndian.Uint64(slot[8:]) != checksum(version, body) || k > maxKey || v > maxValue {
		return nil, nil, 0, errTorn
	}
	data := slot[dataAt:slotSize]
	return data[:k], data[k : k+v], version, nil
}

// search finds a key in copies of the slots near its hash.
func search(slots []byte, key string) (value []byte, version uint64, err error) {
	for at := 0; at < len(slots); at += slotSize {
		k, v, version, err := parse(slots[at : at+slotSize])
		if err != nil {
			return nil, 0, err
		}
		if string(k) == key {
			return v, version, nil
		}
	}
	return nil, 0, errNotFound
}

// table is the server's side: all writes go through it.
type table struct {
	mu  sync.Mutex
	mem []byte // of near-1 slots more than n, so that a READ never wraps
	n   int
}

// newTable makes a table of n slots, a power of 2.
func newTable(n int) (*table, error) {
	if n < 1 || n > 1<<24 || n&(n-1) != 0 {
		return nil, fmt.Errorf("%d slots: must be a power of 2, at most %d", n, 1<<24)
	}
	mem := make([]byte, (n+near-1)*slotSize) // aligned, because it is large
	t := &table{mem: mem, n: n}
	for at := 0; at < len(mem); at += slotSize {
		finish(mem[at:at+slotSize], 0)
	}
	return t, nil
}

// write changes a key if it has the version; nil deletes it. It returns the new version.
func (t *table) write(key string, value []byte, version uint64) (uint64, error) {
	if len(key) == 0 || len(key) > maxKey || len(value) > maxValue {
		return 0, errSize
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	first := home(key, t.n) * slotSize
	slots := t.mem[first : first+near*slotSize]
	var free []byte
	for at := 0; at < len(slots); at += slotSize {
		slot := slots[at : at+slotSize]
		k, _, v, err := parse(slot)
		switch {
		case err != nil:
			return 0, err // another program has written to the memory
		case string(k) == key:
			if version != anyVersion && version != v {
				return v, errVersion
			}
			return put(slot, key, value), nil
		case len(k) == 0 && free == nil:
			free = slot
		}
	}
	switch {
	case value == nil:
		return 0, errNotFound
	case version != anyVersion && version != noVersion:
		return 0, errVersion
	case free == nil:
		return 0, errFull
	}
	return put(free, key, value), nil
}

// put writes a slot: free if value is nil.
func put(slot []byte, key string, value []byte) (version uint64) {
	version = begin(slot)
	clear(slot[bodyAt:])
	if value != nil {
		slot[bodyAt] = byte(len(key))
		binary.LittleEndian.PutUint16(slot[bodyAt+2:], uint16(len(value)))
		copy(slot[dataAt+copy(slot[dataAt:], key):], value)
	}
	finish(slot, version)
	return version
}

// begin marks a slot as being written, and returns the version that it will have.
func begin(slot []byte) uint64 {
	v := (*uint64)(unsafe.Pointer(unsafe.SliceData(slot)))
	old := binary.LittleEndian.Uint64(slot)
	var odd, even [8]byte
	binary.LittleEndian.PutUint64(odd[:], old+1)
	binary.LittleEndian.PutUint64(even[:], old+2)
	atomic.StoreUint64(v, binary.NativeEndian.Uint64(odd[:]))
	return old + 2
}

// finish gives a slot its checksum and its version.
func finish(slot []byte, version uint64) {
	binary.LittleEndian.PutUint64(slot[8:], checksum(version, slot[bodyAt:slotSize]))
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], version)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(slot))), binary.NativeEndian.Uint64(b[:]))
}

// A request of a client, and the server's answer:
//
//	request: op (1), length of the key (1), length of the value (2), version (8), key, value
//	answer:  status (1), version (8)
//	hello:   address of the table (8), rkey (4), slots (4)
const (
	opPut    = 1
	opDelete = 2

	requestHead = 12
	maxRequest  = requestHead + maxKey + maxValue
	answerSize  = 9
	helloSize   = 16
)

// statuses are the errors that an answer can name, by status.
var statuses = []error{nil, errNotFound, errFull, errVersion, errSize}

// do executes a request. ok is false if it is malformed.
func (t *table) do(request []byte) (answer [answerSize]byte, ok bool) {
	if len(request) < requestHead {
		return answer, false
	}
	k, v := int(request[1]), int(binary.LittleEndian.Uint16(request[2:]))
	data := request[requestHead:]
	if len(data) != k+v {
		return answer, false
	}
	value := bytes.Clone(data[k:])
	switch request[0] {
	case opPut:
		if value == nil {
			value = []byte{}
		}
	case opDelete:
		value = nil
	default:
		return answer, false
	}
	version, err := t.write(string(data[:k]), value, binary.LittleEndian.Uint64(request[4:]))
	for i, e := range statuses {
		if errors.Is(err, e) {
			answer[0] = byte(i)
			binary.LittleEndian.PutUint64(answer[1:], version)
			return answer, true
		}
	}
	return answer, false
}

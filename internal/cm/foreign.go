package cm

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// foreign does for another process, by its board, what the Guard of that process does with requests. It is of the
// process that reads QP 1 for both. It is safe for concurrent use.
type foreign struct {
	board   *board.Board
	now     func() int64
	refused *refusals
	seen    [board.Kinds]atomic.Uint64 // floods of the board
	gates   [board.Kinds]gate
}

// foreignRefused are the requests that were dropped for other processes, of all of them: it takes 1 MiB.
var foreignRefused = sync.OnceValue(func() *refusals {
	var key [8]byte
	_, _ = rand.Read(key[:])
	return &refusals{key: binary.NativeEndian.Uint64(key[:])}
})

var started = time.Now()

// NewForeign returns the screen of the requests for another process, which has a board.
func NewForeign(b *board.Board) board.Screen { return newForeign(b) }

func newForeign(b *board.Board) *foreign {
	f := &foreign{board: b, now: func() int64 { return int64(time.Since(started)) }, refused: foreignRefused()}
	for k := range f.seen {
		f.seen[k].Store(b.Floods(board.Kind(k)))
	}
	return f
}

// Drop reports whether a datagram is to be dropped instead of being passed on to the process.
func (f *foreign) Drop(mad []byte) bool {
	msg, err := cmmsg.Parse(mad)
	if err != nil || msg.Kind() != cmmsg.KindREQ && msg.Kind() != cmmsg.KindSIDRREQ {
		return false
	}
	k, now := kindOf(msg), f.now()
	gate := &f.gates[k]
	if n := f.board.Floods(k); n != f.seen[k].Load() {
		f.seen[k].Store(n)
		gate.close(now)
	}
	if !gate.closed(now) {
		return false
	}
	if i, ok := sourceIndex(msg); ok && f.board.Knows(i) {
		return false
	}
	return gate.drop(now, 0, f.refused, msg)
}

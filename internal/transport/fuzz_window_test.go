package transport

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/mr"
)

// The windows of the QP under test, all in the region regWindows.
const (
	winOwn   = iota // type 2, all rights; invalidated and bound again
	winType1        // readable
	winOther        // type 2, all rights, bound through another QP
	winCount
)

// winSpans are the positions of the windows in the region.
var winSpans = [winCount][2]int{winOwn: {1000, 1900}, winType1: {100, 300}, winOther: {2000, 2500}}

var winAccess = [winCount]mr.Access{
	winOwn:   mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic,
	winType1: mr.RemoteRead,
	winOther: mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic,
}

func (h *hostile) bindWindows() {
	r := h.regions[regWindows]
	for i := range h.windows {
		w := &mr.Window{PD: stagePD, Type: mr.Type2}
		if i == winType1 {
			w.Type = mr.Type1
		}
		if err := h.stage.regions.AddWindow(w); err != nil {
			h.t.Fatal(err)
		}
		span := winSpans[i]
		h.windows[i] = mr.Binding{
			Window: w, RKey: h.stage.regions.Key(w), LKey: r.LKey, Access: winAccess[i],
			Addr: r.Base + uint64(span[0]), Length: uint64(span[1] - span[0]),
		}
		id := h.qp.id
		if i == winOther {
			id++
		} else {
			h.paint(i, public)
		}
		if err := h.stage.regions.Bind(&h.windows[i], stagePD, id); err != nil {
			h.t.Fatal(err)
		}
	}
	h.open = true
	if err := h.stage.regions.Remove(r); !errors.Is(err, mr.ErrBound) {
		h.t.Fatalf("a region with windows can be removed: %v", err)
	}
}

// paint fills the memory of a window.
func (h *hostile) paint(i int, c byte) {
	span := winSpans[i]
	for j := span[0]; j < span[1]; j++ {
		h.regions[regWindows].Buf[j] = c
	}
}

// window binds winOwn again with another key, or invalidates it, possibly while READs through it wait for their
// responses.
func (h *hostile) window(b [8]byte) {
	w := &h.windows[winOwn]
	if h.open {
		if err := h.stage.regions.Invalidate(w.RKey, stagePD, h.qp.id); err != nil {
			h.t.Fatal(err)
		}
	} else {
		h.checkWindows()
		old := *w
		w.RKey = w.RKey&^255 | uint32(uint8(w.RKey+1+uint32(b[1]&3)))
		h.paint(winOwn, public)
		if err := h.stage.regions.Bind(w, stagePD, h.qp.id); err != nil {
			h.t.Fatal(err)
		}
		if err := h.stage.regions.Invalidate(old.RKey, stagePD, h.qp.id); err == nil {
			h.t.Fatal("the key of an earlier bind can be invalidated")
		}
	}
}

// watchWindow marks winOwn's memory secret as soon as the peer has no access.
func (h *hostile) watchWindow() {
	w := &h.windows[winOwn]
	_, _, err := h.stage.regions.CheckRemote(w.RKey, w.Addr, w.Length, stagePD, h.qp.id, winAccess[winOwn])
	was := h.open
	if h.open = err == nil; was && !h.open {
		h.paint(winOwn, secret)
	}
}

// checkWindows detects writes outside the windows and into windows without write access.
func (h *hostile) checkWindows() {
	for i, c := range h.regions[regWindows].Buf {
		in := func(win int) bool { return winSpans[win][0] <= i && i < winSpans[win][1] }
		want := byte(secret)
		switch {
		case in(winOwn) && h.open:
			continue
		case in(winType1):
			want = public
		}
		if c != want {
			h.t.Fatalf("byte %d of the region with windows was written", i)
		}
	}
}

// target is a key known to the peer, and the memory it refers to.
type target struct {
	key  uint32
	base uint64
	size uint64
}

func (h *hostile) target(n int) target {
	n %= regCount + winCount
	if n < regCount {
		r := h.regions[n]
		return target{r.RKey, r.Base, regSize}
	}
	w := &h.windows[n-regCount]
	return target{w.RKey, w.Addr, w.Length}
}

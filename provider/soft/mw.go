package soft

import (
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/verbs"
)

// window is an MWDriver.
type window struct {
	ctx *context
	w   *mr.Window
	key uint32 // the first one
}

// AllocMW makes a memory window.
func (p *pd) AllocMW(t verbs.MWType) (verbs.MWDriver, error) {
	w := &window{ctx: p.ctx, w: &mr.Window{PD: p.num, Type: mr.WindowType(t)}}
	if err := p.ctx.regions.AddWindow(w.w); err != nil {
		return nil, verbsError("", err)
	}
	w.key = p.ctx.regions.Key(w.w)
	return w, nil
}

// RKey is the key that the window was made with.
func (w *window) RKey() uint32 { return w.key }

// Dealloc unbinds the window and forgets it. No peer touches memory through it afterwards.
func (w *window) Dealloc() error {
	w.ctx.regions.RemoveWindow(w.w)
	w.ctx.settle()
	return nil
}

// toBinding is what a BIND_MW asks for.
func toBinding(wr *verbs.SendWR) mr.Binding {
	info := wr.BindInfo
	b := mr.Binding{
		Window: wr.MW.Driver().(*window).w, RKey: wr.RKey, Access: mr.Access(info.Access), Addr: info.Addr, Length: info.Length,
	}
	if info.MR != nil {
		b.LKey = info.MR.LKey()
	}
	return b
}

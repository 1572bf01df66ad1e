package endpoint

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Pumping is what Second.Pump does: it WRITEs to the first process, which is passive.
type Pumping struct {
	Peer   Hello
	Bytes  int // of each WRITE
	Window int // WRITEs in flight
	Each   time.Duration
}

// Hello is what the second process must know of this one's End to WRITE to it.
func (p *Pair) Hello() (Hello, error) {
	infos, err := p.End.Infos()
	return Hello{QPs: infos, Addr: p.End.MR.Addr(), RKey: p.End.MR.RKey()}, err
}

// Pump tells how many WRITEs were done in a second.
func (s *Second) Pump(a Pumping, rate *float64) (err error) {
	p := &Pair{End: s.end, Peer: a.Peer}
	*rate, err = p.PumpBatches(a.Each, a.Window, p.Remote(verbs.WRRDMAWrite, 0, 0, a.Bytes))
	return err
}

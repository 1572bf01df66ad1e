package endpoint

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/verbs"
)

// A Pair is the first process's view of both processes.
type Pair struct {
	*duo.Process
	Here, There netip.Addr
	End         *End
	Peer        Hello
}

// Start starts the second process, on the same loopback address if it can be shared. It opens no device.
func Start() (*Pair, error) {
	here, there, err := duo.Addresses()
	if err != nil {
		return nil, err
	}
	return startAt(here, there)
}

// StartAt is Start with both processes on one address, which further processes may share.
func StartAt(addr netip.Addr) (*Pair, error) { return startAt(addr, addr) }

func startAt(here, there netip.Addr) (*Pair, error) {
	if err := Setenv(here); err != nil {
		return nil, err
	}
	p, err := duo.Start("VERBENA_DEVICES=" + deviceSpec(there))
	if err != nil {
		return nil, err
	}
	return &Pair{Process: p, Here: here, There: there}, nil
}

// Connect creates an End in each process and connects their QPs.
func (p *Pair) Connect(o Options) error {
	if err := p.Call("Open", o, &p.Peer); err != nil {
		return err
	}
	var err error
	if p.End, err = Open(o); err != nil {
		return err
	}
	infos, err := p.End.Infos()
	if err != nil {
		return err
	}
	if err := p.Call("Connect", infos, &None{}); err != nil {
		return err
	}
	return p.End.Connect(p.Peer.QPs)
}

// Close closes the End and ends the second process.
func (p *Pair) Close() error {
	var err error
	if p.End != nil {
		err = p.End.Close()
	}
	p.Stop()
	return err
}

// Serving runs the second process's Serve while do runs.
func (p *Pair) Serving(s Serving, do func() error) error {
	if err := p.Call("Prepare", s, &None{}); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- p.Call("Serve", s, &None{}) }()
	err := do()
	if stop := p.Call("Stop", None{}, &None{}); err == nil {
		err = stop
	}
	if serve := <-served; err == nil {
		err = serve
	}
	return err
}

// Remote returns a request of op on n bytes at the peer's offset there, with local memory at offset here.
func (p *Pair) Remote(op verbs.WROpcode, here, there, n int) verbs.SendWR {
	return verbs.SendWR{
		Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.End.MR.SGE(here, n)},
		RemoteAddr: p.Peer.Addr + uint64(there), RKey: p.Peer.RKey,
	}
}

// Do posts one request on the first QP and waits for its completion.
func (p *Pair) Do(wr verbs.SendWR) (verbs.WC, error) {
	if err := p.End.QPs[0].PostSend(wr); err != nil {
		return verbs.WC{}, err
	}
	return p.End.WaitOne()
}

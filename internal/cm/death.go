package cm

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// In Linux a connection belongs to the kernel, which outlives a process that is killed and ends its connections for it: with a DREQ, or a
// REJ if they were still being made. Here nobody is left to send it. Where this end learns of the death in another way, the machine
// takes that message as come, so that everything is as it would be there; should it come as well, it is a duplicate.

// Death is that of a peer's process, as one connection of it sees it.
type Death struct {
	Peer      netip.Addr
	RemoteQPN uint32
	LocalQPN  uint32
}

// lastWords is how long the RTU of a peer that has died may still be under way, in the sockets of this host.
const lastWords = 1000 * millisecond

// deathKey finds the death that an ID has suffered. local is 0 for an ID that has no QP yet, since Accept tells.
type deathKey struct {
	gid           [16]byte
	remote, local uint32
}

// OnDeath ends the connections to processes that have died: as EventDREQ does if they were established, else as EventREJ.
func (m *Machine) OnDeath(now int64, deaths []Death, out *Batch) {
	keys := make(map[deathKey]struct{}, 2*len(deaths))
	for _, d := range deaths {
		k := deathKey{cmmsg.GID(d.Peer), d.RemoteQPN, d.LocalQPN}
		keys[k] = struct{}{}
		k.local = 0
		keys[k] = struct{}{}
	}
	var bereft []*ID
	for _, id := range m.ids {
		if _, ok := keys[deathKey{cmmsg.GID(id.path.Dst), id.remoteQPN, id.localQPN}]; ok && id.remoteQPN != 0 {
			bereft = append(bereft, id)
		}
	}
	slices.SortFunc(bereft, func(a, b *ID) int { return cmp.Compare(a.localID, b.localID) })
	for _, id := range bereft {
		m.bereave(now, id, out)
	}
}

// bereave takes the message that ends a connection for a peer that cannot send it.
func (m *Machine) bereave(now int64, id *ID, out *Batch) {
	switch id.state {
	case StateREPSent, StateMRAREPRcvd:
		if !id.bereft {
			id.bereft = true
			m.arm(id, now+lastWords)
		}
		return
	case StateREQRcvd, StateMRAREQSent:
		m.takeREJ(now, id, unsentREJ(id, cmmsg.RejTimeout), out)
	case StateREPRcvd, StateMRAREPSent:
		m.takeREJ(now, id, unsentREJ(id, cmmsg.RejConsumer), out)
	case StateEstablished, StateDREQSent:
		m.takeDREQ(now, id, unsentDREQ(id), out)
	default:
		return
	}
	m.Counters.Deaths++
}

// noRTU is the end of waiting for the RTU of a peer that has died.
func (m *Machine) noRTU(now int64, id *ID, out *Batch) {
	m.Counters.Deaths++
	m.takeREJ(now, id, unsentREJ(id, cmmsg.RejTimeout), out)
}

func unsentDREQ(id *ID) cmmsg.Msg {
	msg := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindDREQ, 0)
	cmmsg.DREQ(msg.Data()).Put(id.remoteID, id.localID, id.localQPN)
	return msg
}

func unsentREJ(id *ID, reason cmmsg.Reason) cmmsg.Msg {
	msg := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindREJ, id.tid)
	cmmsg.REJ(msg.Data()).Put(id.remoteID, id.localID, cmmsg.AboutOther, reason, nil)
	return msg
}

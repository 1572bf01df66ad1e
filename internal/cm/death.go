package cm

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// In Linux a connection belongs to the kernel, which outlives a process that is killed and ends its connections: with
// a DREQ, or a REJ if they are not established yet. Here the process itself would have to send it. When this end
// learns of the death by other means, the machine acts as if that message had come. If it comes as well it is a
// duplicate.

// Death is the death of a peer's process, for one of its connections, or the peer's silence.
type Death struct {
	Peer      netip.Addr
	RemoteQPN uint32
	LocalQPN  uint32
	Silent    bool // the peer may be alive: it did not answer keep-alive
}

// deathGrace is the time for the RTU of a peer that has died to arrive: it may be in the sockets of this host.
const deathGrace = 1000 * millisecond

// deathKey identifies the connections of a death. local is 0 for an ID that has no QP yet: Accept brings it.
type deathKey struct {
	gid           [16]byte
	remote, local uint32
}

// OnDeath ends the connections to processes that have died: with EventDREQ if they were established, else with
// EventREJ. Established connections to silent peers get EventSilent, and stay.
func (m *Machine) OnDeath(now int64, deaths []Death, out *Batch) {
	silent := map[uint32]bool{}
	keys := make(map[deathKey]struct{}, 2*len(deaths))
	for _, d := range deaths {
		k := deathKey{cmmsg.GID(d.Peer), d.RemoteQPN, d.LocalQPN}
		keys[k] = struct{}{}
		if silent[d.LocalQPN] = d.Silent; d.Silent {
			continue
		}
		k.local = 0
		keys[k] = struct{}{}
	}
	var peerDied []*ID
	for _, id := range m.ids {
		if _, ok := keys[deathKey{cmmsg.GID(id.path.Dst), id.remoteQPN, id.localQPN}]; ok && id.remoteQPN != 0 {
			peerDied = append(peerDied, id)
		}
	}
	slices.SortFunc(peerDied, func(a, b *ID) int { return cmp.Compare(a.localID, b.localID) })
	for _, id := range peerDied {
		switch {
		case !silent[id.localQPN]:
			m.takeDeath(now, id, out)
		case id.state == StateEstablished:
			out.report(EventSilent, id, nil)
		}
	}
}

// takeDeath takes the message that would end the connection.
func (m *Machine) takeDeath(now int64, id *ID, out *Batch) {
	switch id.state {
	case StateREPSent, StateMRAREPRcvd:
		if !id.peerDied {
			id.peerDied = true
			m.arm(id, now+deathGrace)
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

// lostRTU ends the wait for the RTU of a peer that has died.
func (m *Machine) lostRTU(now int64, id *ID, out *Batch) {
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

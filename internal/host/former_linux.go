package host

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A process may end a listener and listen at the same port again at once. Requests that come in between go to that
// process, which keeps them for a while (internal/cm, reopen.go); the leader would refuse them.

const (
	formerTime = 3 * time.Second // as long as the process remembers the port; see endedTime in internal/cm
	maxFormer  = 64
)

// A formerOwner is the member that released a service ID, until a time.
type formerOwner struct {
	service cmmsg.ServiceID
	member  *session
	until   time.Time
}

// noteRelease notes that a member has released a service ID.
//
// +checklocks:l.mu
func (l *leader) noteRelease(id uint64, s *session) {
	now := l.now()
	l.former = slices.DeleteFunc(l.former, func(f formerOwner) bool {
		return f.service == cmmsg.ServiceID(id) || !now.Before(f.until)
	})
	if len(l.former) == maxFormer {
		l.former = slices.Delete(l.former, 0, 1)
	}
	l.former = append(l.former, formerOwner{cmmsg.ServiceID(id), s, now.Add(formerTime)})
}

// forgetFormer forgets what a member has released, because it has left.
//
// +checklocks:l.mu
func (l *leader) forgetFormer(s *session) {
	l.former = slices.DeleteFunc(l.former, func(f formerOwner) bool { return f.member == s })
}

// formerOwnerOf returns the member that has just released the port of a request's service ID, nil if none has. The
// service ID has no owner.
//
// +checklocks:l.mu
func (l *leader) formerOwnerOf(pkt []byte) *session {
	a, ok := addressOf(pkt)
	if !ok || a.Slot >= 0 || len(l.former) == 0 {
		return nil
	}
	now := l.now()
	i := slices.IndexFunc(l.former, func(f formerOwner) bool {
		return f.service.SamePort(cmmsg.ServiceID(a.Service)) && now.Before(f.until)
	})
	if i < 0 {
		return nil
	}
	return l.former[i].member
}

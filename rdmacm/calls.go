package rdmacm

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// The manager's calls of the machine, one method for each. All but owner are called under an ID's lock.

// connect sends a REQ. It returns the machine's ID of the connection.
func (m *manager) connect(id *ID, p *cm.ConnectParams) (*cm.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.machine.NewID(id)
	err := m.machine.Connect(m.now(), c, p, &m.batch)
	m.finish()
	return c, err
}

// lookup sends a SIDR_REQ. It returns the machine's ID of the look-up.
func (m *manager) lookup(id *ID, p *cm.LookupParams) (*cm.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.machine.NewID(id)
	err := m.machine.Lookup(m.now(), c, p, &m.batch)
	m.finish()
	return c, err
}

// establish sends the RTU.
func (m *manager) establish(c *cm.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.machine.Establish(c, nil, &m.batch)
	m.finish()
	return err
}

// listen makes a listener.
func (m *manager) listen(p cm.ListenParams) (*cm.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.machine.Listen(m.now(), p, &m.batch)
	m.finish()
	return l, err
}

// unlisten ends a listener.
func (m *manager) unlisten(l *cm.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.Unlisten(m.now(), l)
}

// adopt makes id the owner of a request.
func (m *manager) adopt(c *cm.ID, id *ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Context = id
}

// owner is the ID of a connection or look-up; nil if it was destroyed.
func (m *manager) owner(c *cm.ID) *ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, _ := c.Context.(*ID)
	return id
}

// taken frees the request's place in its listener's backlog.
func (m *manager) taken(c *cm.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.Taken(c)
}

// accept sends the REP.
func (m *manager) accept(c *cm.ID, p *cm.AcceptParams) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.machine.Accept(m.now(), c, p, &m.batch)
	m.finish()
	return err
}

// answer sends the SIDR_REP.
func (m *manager) answer(c *cm.ID, p *cm.AnswerParams) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.machine.Answer(m.now(), c, p, &m.batch)
	m.finish()
	return err
}

// reject sends a REJ. It flushes, as disconnect and destroy do: the program may exit at once, and the peer would then
// wait for its last datagram until a time-out.
func (m *manager) reject(c *cm.ID, reason cmmsg.Reason, private []byte) error {
	m.mu.Lock()
	err := m.machine.Reject(m.now(), c, reason, nil, private, &m.batch)
	m.finishSent()
	return err
}

// answerPath sends the APR.
func (m *manager) answerPath(c *cm.ID, status cmmsg.APRStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.machine.AnswerPath(c, status, nil, nil, &m.batch)
	m.finish()
	return err
}

// notify establishes a connection whose RTU has not come.
func (m *manager) notify(c *cm.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.machine.Notify(c, &m.batch)
	m.finish()
	return err
}

// errNotEstablished: there is no connection to disconnect yet.
var errNotEstablished = errors.New("the connection is not established; Close withdraws the request")

// disconnectable returns errNotEstablished for a connection that is still being made.
func (m *manager) disconnectable(c *cm.ID) error {
	switch m.state(c) {
	case cm.StateEstablished, cm.StateDREQRcvd, cm.StateDREQSent, cm.StateTimewait, cm.StateIdle:
		return nil
	}
	return errNotEstablished
}

// disconnect sends a DREQ, or the DREP if the peer has sent a DREQ. It does nothing for a connection that is ending
// or has ended.
func (m *manager) disconnect(c *cm.ID) error {
	m.mu.Lock()
	switch c.State() {
	case cm.StateDREQSent, cm.StateTimewait, cm.StateIdle:
		m.mu.Unlock()
		return nil
	}
	err := m.machine.Disconnect(m.now(), c, nil, &m.batch)
	m.finishSent()
	return err
}

// giveUp ends the wait for the answer to a DREQ.
func (m *manager) giveUp(c *cm.ID) {
	m.mu.Lock()
	m.machine.GiveUp(m.now(), c, &m.batch)
	m.finishSent()
}

// destroy ends a connection, a request or a look-up, whatever its state.
func (m *manager) destroy(c *cm.ID) {
	m.mu.Lock()
	m.machine.Destroy(m.now(), c, &m.batch)
	m.finishSent()
}

// state is the machine's state of a connection or look-up.
func (m *manager) state(c *cm.ID) cm.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.State()
}

// attrs returns the attributes of the QP and the path that the messages have.
func (m *manager) attrs(c *cm.ID) (cm.Attrs, cm.Path) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.Attrs(), *c.Path()
}

// counters returns the machine's counters.
func (m *manager) counters() cm.Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Counters
}

package rsocket

import "net"

// TakeSendSlots takes all send slots of a socket, when it knows the QP of a peer. release returns them.
func (c *PacketConn) TakeSendSlots() (release func() error) { return c.d.TakeSendSlots() }

// LoseAddress gives the QPs of a datagram socket a wrong local address, until restore is called.
func LoseAddress(c net.PacketConn) (restore func()) { return c.(*PacketConn).d.LoseAddress() }

// KnowsQP reports whether messages of a datagram socket to a peer go to its QP.
func KnowsQP(c net.PacketConn, to net.Addr) bool { return c.(*PacketConn).d.KnowsQP(addrPort(to)) }

// Meet tells a datagram socket the QP of another one, which has one.
func Meet(c net.PacketConn, other net.Conn) error {
	return c.(*PacketConn).d.Meet(other.(*PacketConn).d)
}

// DeliverTwo delivers two messages with one wake-up.
func (c *PacketConn) DeliverTwo(from net.Addr, first, second string) {
	c.d.DeliverTwo(addrPort(from), first, second)
}

// Queued counts the connections that wait for Accept.
func Queued(l net.Listener) int { return l.(*Listener).a.Queued() }

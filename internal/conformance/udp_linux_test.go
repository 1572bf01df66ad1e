package conformance_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/conformance"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/packet"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// Every statement over UDP sockets on the loopback interface, in real time.
func TestConformanceUDP(t *testing.T) {
	conformance.Run(t, conformance.Setup{Name: "udp", New: newUDP})
}

// Every statement over shared memory, which the devices use as two processes of one host do.
func TestConformanceShm(t *testing.T) {
	conformance.Run(t, conformance.Setup{Name: "shm", New: newShm})
}

// udpPort is not 4791, which an rdma_rxe of this host may occupy.
const udpPort = 14792

// udpNetwork is the loopback interface. Each process uses its own addresses, so that several can run the
// tests at the same time.
type udpNetwork struct {
	tb      testing.TB
	devices []*udpDevice
	hosts   int
	shm     bool
}

type udpDevice struct {
	*soft.Device
	addr  netip.Addr
	fault *fault.Link // set when a QP exists
	loss  float64
	shm   bool
}

func newUDP(tb testing.TB) conformance.Network { return &udpNetwork{tb: tb} }

// loopback returns an address of this process.
func loopback(i int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x80, byte(pid), byte(i)})
}

func newShm(tb testing.TB) conformance.Network { return &udpNetwork{tb: tb, shm: true} }

func (n *udpNetwork) Group() netip.Addr {
	own := loopback(1).As4()
	own[0] = 239
	return netip.AddrFrom4(own)
}

func (n *udpNetwork) must(err error) {
	n.tb.Helper()
	if err != nil {
		n.tb.Fatal(err)
	}
}

func (n *udpNetwork) Open() *verbs.Context {
	i := len(n.devices) + 1
	d := &udpDevice{addr: loopback(20 + i), shm: n.shm}
	links := softlink.Links{Open: d.open, Raw: openRaw}
	if n.shm {
		links.Raw = nil // a device without Ethernet frames must satisfy all other statements
	}
	c := soft.Config{Name: fmt.Sprintf("vrb_udp%d", i), Addrs: []netip.Addr{d.addr}, Shards: 2}
	dev, err := soft.New(softlink.On(c, links))
	n.must(err)
	d.Device = dev
	n.devices = append(n.devices, d)
	ctx, err := dev.Open()
	n.must(err)
	n.tb.Cleanup(func() {
		if err := ctx.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			n.tb.Error(err)
		}
	})
	return ctx
}

// openRaw opens the loopback interface for frames, which needs CAP_NET_RAW.
func openRaw() (link.Raw, error) { return packet.Open("lo") }

func (d *udpDevice) open(addrs []netip.Addr, ports int) (link.Link, error) {
	l, err := udp.Open(udp.Config{Addrs: addrs, Ports: ports, Port: udpPort})
	if err != nil {
		return nil, err
	}
	if d.shm {
		l = shm.Near(l, addrs, udpPort)
	}
	d.fault = fault.Wrap(l, fault.Config{Seed: 1, Send: fault.Faults{Loss: d.loss}})
	return d.fault, nil
}

func (n *udpNetwork) device(ctx *verbs.Context) *udpDevice {
	for _, d := range n.devices {
		if d.Device.Device == ctx.Device() {
			return d
		}
	}
	n.tb.Fatal("the context is not of this network")
	return nil
}

func (n *udpNetwork) Addr(ctx *verbs.Context) netip.Addr { return n.device(ctx).addr }

// late is the minimum time-out of Await, for busy machines.
const late = 20 * time.Second

func (n *udpNetwork) Await(done func() bool, limit time.Duration) bool {
	start := time.Now()
	for i := 0; !done(); i++ {
		if i < 50 {
			runtime.Gosched()
			continue
		}
		time.Sleep(50 * time.Microsecond)
		if time.Since(start) > max(limit, late) {
			return done()
		}
	}
	return true
}

func (n *udpNetwork) Pause(d time.Duration) { time.Sleep(d) }

func (n *udpNetwork) Counter(ctx *verbs.Context, name string) uint64 {
	n.tb.Helper()
	for _, c := range n.device(ctx).Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	n.tb.Fatalf("no counter %s", name)
	return 0
}

func (n *udpNetwork) Lose(p float64) {
	for _, d := range n.devices {
		d.loss = p
		if d.fault != nil {
			d.fault.SetFaults(fault.Faults{Loss: p}, fault.Faults{})
		}
	}
}

// udpHost is a host with a UDP socket.
type udpHost struct {
	net  *udpNetwork
	conn *net.UDPConn
	raw  syscall.RawConn
	addr netip.AddrPort
	buf  [8192]byte
}

func (n *udpNetwork) Host() conformance.Host {
	n.hosts++
	return n.socket(netip.AddrPortFrom(loopback(120+n.hosts), udpPort))
}

func (n *udpNetwork) Forger(ctx *verbs.Context) conformance.Host {
	return n.socket(netip.AddrPortFrom(n.Addr(ctx), 0))
}

func (n *udpNetwork) socket(at netip.AddrPort) *udpHost {
	n.tb.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	n.must(err)
	n.tb.Cleanup(func() { c.Close() })
	raw, err := c.SyscallConn()
	n.must(err)
	n.must(raw.Control(func(fd uintptr) {
		// With DF set the IP identification is 0, as Seal assumes.
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	}))
	n.must(err)
	return &udpHost{net: n, conn: c, raw: raw, addr: c.LocalAddr().(*net.UDPAddr).AddrPort()}
}

func (h *udpHost) Addr() netip.Addr { return h.addr.Addr().Unmap() }

func (h *udpHost) Seal(dst netip.Addr, pkt []byte) []byte {
	return seal(h.Addr(), dst, h.addr.Port(), udpPort, pkt)
}

func (h *udpHost) Send(dst netip.Addr, datagram []byte) {
	_, err := h.conn.WriteToUDPAddrPort(datagram, netip.AddrPortFrom(dst, udpPort))
	h.net.must(err)
}

func (h *udpHost) Recv() []byte {
	var (
		n    int
		from unix.Sockaddr
		errR error
	)
	h.net.must(h.raw.Control(func(fd uintptr) { n, from, errR = unix.Recvfrom(int(fd), h.buf[:], unix.MSG_DONTWAIT) }))
	if errors.Is(errR, unix.EAGAIN) {
		return nil
	}
	h.net.must(errR)
	b, peer := h.buf[:n], from.(*unix.SockaddrInet4)
	f := wire.NewFlow(netip.AddrFrom4(peer.Addr), h.Addr(), uint16(peer.Port), udpPort)
	if _, ok := f.Verify(b, 0); !ok {
		h.net.tb.Errorf("a packet with a wrong ICRC: % x", b)
	}
	return append([]byte(nil), b[:n-wire.ICRCLen]...)
}

package soft

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// noFrames is a link of frames that has none.
type noFrames struct{}

func (noFrames) Start(func([]byte, bool)) {}
func (noFrames) Send([]byte) error        { return nil }
func (noFrames) MTU() int                 { return 1500 }
func (noFrames) Close() error             { return nil }

// TestFramesOfAnotherInterface: a RAW_PACKET QP and a flow rule of a port that is on another interface than port 1 are
// refused: the frames are those of port 1's interface.
func TestFramesOfAnotherInterface(t *testing.T) {
	for _, second := range []string{"x0", "x1"} {
		d := newDevice(spec{name: "vrb_x", iface: "x0", addrs: addrs("192.0.2.1", "192.0.2.2"), on: []string{"x0", second},
			onPort: []uint8{1, 2}})
		d.ifaceState = func(s *spec) ifaceState { return ifaceState{iface: s.iface, up: true, mtu: 1500, addrs: s.addrs} }
		d.cfg.links.Open = mem.NewFabric(mem.Config{}).Open
		d.cfg.links.Raw = func() (link.Raw, error) { return noFrames{}, nil }
		c := made(driver.NewDevice(d).Open())(t)
		pd, cq := made(c.AllocPD())(t), made(c.CreateCQ(8, nil))(t)
		init := func(typ verbs.QPType) *verbs.QPInitAttr {
			return &verbs.QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq,
				Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
		}
		raw, ud := made(pd.CreateQP(init(verbs.QPTypeRawPacket)))(t), made(pd.CreateQP(init(verbs.QPTypeUD)))(t)
		for port := uint8(1); port <= 2; port++ {
			ok := port == 1 || second == "x0"
			check := func(what string, err error) {
				t.Helper()
				if ok && err != nil || !ok && !errors.Is(err, verbs.EOPNOTSUPP) {
					t.Errorf("%s, port %d on %s: %v", what, port, second, err)
				}
			}
			check("RAW_PACKET", raw.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: port},
				verbs.QPAttrState|verbs.QPAttrPort))
			if err := raw.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState); err != nil {
				t.Fatal(err)
			}
			f, err := ud.CreateFlow(&verbs.FlowAttr{Type: verbs.FlowAttrSniffer, Port: port})
			check("rule", err)
			if err == nil {
				err = f.Close()
			}
			if ok && err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(raw.Close(), ud.Close(), cq.Close(), pd.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}
}

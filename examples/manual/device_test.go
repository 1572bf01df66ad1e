package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// E-02: open each device and print the states of its ports. A program gets the list of devices from verbs.Devices.
func Example_e02Devices() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	defer f.Close()
	devices := []*verbs.Device{must(f.NewDevice("vrb_a")), must(f.NewDevice("vrb_b"))}

	for _, dev := range devices {
		vctx := must(dev.Open())
		attr := must(vctx.QueryDevice())
		fmt.Printf("%s has %d port(s)\n", dev.Name(), attr.PhysPortCnt)
		for port := uint8(1); port <= attr.PhysPortCnt; port++ {
			p := must(vctx.QueryPort(port))
			fmt.Printf("  port %d: state %v, link layer %v, MTU %v\n", port, p.State, p.LinkLayer, p.ActiveMTU)
		}
		check(vctx.Close())
	}
	// Output:
	// vrb_a has 1 port(s)
	//   port 1: state active, link layer Ethernet, MTU 4096
	// vrb_b has 1 port(s)
	//   port 1: state active, link layer Ethernet, MTU 4096
}

// E-03: a GID of the port's table. On RoCE, GIDs are the addresses of the interface. The software device has its first
// address at index 1.
func Example_e03GID() {
	vctx, done := open()
	defer done()
	gid := must(vctx.QueryGID(1, 1))
	fmt.Println(gid)
	if _, err := vctx.QueryGID(1, 1<<20); err != nil {
		fmt.Println("index out of range")
	}
	// Output:
	// ::ffff:198.18.0.1
	// index out of range
}

// E-04: a P_Key of the port's table. A RoCE port has one, the default P_Key.
func Example_e04PKey() {
	vctx, done := open()
	defer done()
	fmt.Printf("0x%04x\n", must(vctx.QueryPKey(1, 0)))
	if _, err := vctx.QueryPKey(1, 2); err != nil {
		fmt.Println("no P_Key at index 2")
	}
	// Output:
	// 0xffff
	// no P_Key at index 2
}

// E-21: the text of a port state. Every enum has a String method.
func Example_e21PortState() {
	vctx, done := open()
	defer done()
	fmt.Println(must(vctx.QueryPort(1)).State, verbs.PortDown, verbs.WCRetryExcErr, verbs.EventQPFatal)
	// Output: active down transport retry counter exceeded local work queue catastrophic error
}

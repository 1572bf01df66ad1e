package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// E-02: list the devices, open each, and print what its ports are up to. A program gets its list from verbs.Devices.
func Example_e02Devices() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	defer f.Close()
	devices := []*verbs.Device{must(f.NewDevice("vrb_a")), must(f.NewDevice("vrb_b"))}

	for _, dev := range devices {
		ctx := must(dev.Open())
		attr := must(ctx.QueryDevice())
		fmt.Printf("%s has %d port(s)\n", dev.Name(), attr.PhysPortCnt)
		for port := uint8(1); port <= attr.PhysPortCnt; port++ {
			p := must(ctx.QueryPort(port))
			fmt.Printf("  port %d: state %v, link layer %v, MTU %v\n", port, p.State, p.LinkLayer, p.ActiveMTU)
		}
		check(ctx.Close())
	}
	// Output:
	// vrb_a has 1 port(s)
	//   port 1: state active, link layer Ethernet, MTU 4096
	// vrb_b has 1 port(s)
	//   port 1: state active, link layer Ethernet, MTU 4096
}

// E-03: a GID of the port's table. On RoCE they stand for the interface's addresses; the software device has one at index 1, and
// 2 belongs to an address that may come.
func Example_e03GID() {
	ctx, done := open()
	defer done()
	gid := must(ctx.QueryGID(1, 1))
	fmt.Println(gid)
	if _, err := ctx.QueryGID(1, 1<<20); err != nil {
		fmt.Println("out of the table")
	}
	// Output:
	// ::ffff:198.18.0.1
	// out of the table
}

// E-04: a P_Key of the port's table. A RoCE port has one, the default.
func Example_e04PKey() {
	ctx, done := open()
	defer done()
	fmt.Printf("0x%04x\n", must(ctx.QueryPKey(1, 0)))
	if _, err := ctx.QueryPKey(1, 2); err != nil {
		fmt.Println("no P_Key at index 2")
	}
	// Output:
	// 0xffff
	// no P_Key at index 2
}

// E-21: names of values: every enum has a String.
func Example_e21PortState() {
	ctx, done := open()
	defer done()
	fmt.Println(must(ctx.QueryPort(1)).State, verbs.PortDown, verbs.WCRetryExcErr, verbs.EventQPFatal)
	// Output: active down transport retry counter exceeded local work queue catastrophic error
}

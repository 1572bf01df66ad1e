package manual

import (
	"fmt"
	"log"
	"net/netip"
	"os"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// E-02: the list of devices, and for each device the number of its ports and whether they are active.
func Example_e02Devices() {
	defer setenv("VERBENA_DEVICES", "vrb_a=127.0.0.1")() // otherwise a device for each network interface
	devices := must(verbs.Devices())
	fmt.Printf("%d RDMA device(s) found:\n\n", len(devices))
	for _, dev := range devices {
		vctx := must(dev.Open())
		attr := must(vctx.QueryDevice())
		fmt.Printf("The device '%s' has %d port(s)\n", dev.Name(), attr.PhysPortCnt)
		for port := uint8(1); port <= attr.PhysPortCnt; port++ {
			state := "isn't"
			if must(vctx.QueryPort(port)).State == verbs.PortActive {
				state = "is"
			}
			fmt.Printf("RDMA device %s, port %d state %s active\n", dev.Name(), port, state)
		}
		check(vctx.Close())
	}
	// Output:
	// 1 RDMA device(s) found:
	//
	// The device 'vrb_a' has 1 port(s)
	// RDMA device vrb_a, port 1 state is active
}

// setenv sets an environment variable until restore is called.
func setenv(name, value string) (restore func()) {
	old, had := os.LookupEnv(name)
	check(os.Setenv(name, value))
	return func() {
		if had {
			check(os.Setenv(name, old))
		} else {
			check(os.Unsetenv(name))
		}
	}
}

// E-03: the GID at index 2 of port 1. On RoCE, GIDs are the addresses of the interface. The software device has its
// first address at index 1.
func Example_e03GID() {
	vctx, done := open(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2"))
	defer done()
	gid, err := vctx.QueryGID(1, 2)
	if err != nil {
		log.Fatalf("failed to query GID index %d of port %d in device '%s': %v", 2, 1, vctx.Device().Name(), err)
	}
	fmt.Println(gid)
	// Output: ::ffff:198.18.0.2
}

// E-04: the P_Key at index 2 of port 1. Without a configuration a RoCE port has one, the default P_Key.
func Example_e04PKey() {
	f := rdmatest.New(rdmatest.Config{RealTime: true, PKeys: []uint16{0xffff, 0x8001, 0x0002}})
	vctx := must(f.Open("vrb_a"))
	defer closeAll(vctx, f)
	pkey, err := vctx.QueryPKey(1, 2)
	if err != nil {
		log.Fatalf("failed to query P_Key index %d of port %d in device '%s': %v", 2, 1, vctx.Device().Name(), err)
	}
	fmt.Printf("0x%04x\n", pkey)
	// Output: 0x0002
}

// E-21: the text of a port state. Every enum has a String method.
func Example_e21PortState() {
	vctx, done := open()
	defer done()
	fmt.Println(must(vctx.QueryPort(1)).State, verbs.PortDown, verbs.WCRetryExcErr, verbs.EventQPFatal)
	// Output: active down transport retry counter exceeded local work queue catastrophic error
}

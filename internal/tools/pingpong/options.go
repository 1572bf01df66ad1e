package pingpong

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

type options struct {
	tcpPort  uint16
	device   string
	port     uint8
	size     uint
	mtu      uint // bytes
	numQP    uint
	rxDepth  uint
	iters    uint
	sl       uint8
	events   bool
	gidIndex int // below 0: by the peer's address
	validate bool
	server   string // the host to connect to; empty for the server itself

	// Optional device features.
	onDemand, implicitOnDemand, prefetch, timestamps, deviceMemory, newSend bool
}

// maxSize bounds a message; RC and UC support 2^31 bytes.
const maxSize = 1 << 31

// parse parses the command line. If ok is false the program ends with status.
func (v *variant) parse(env *tool.Env, args []string) (o *options, status int, ok bool) {
	o = &options{numQP: 1}
	f := tool.NewFlags(env, "[options]        wait for a client\n[options] HOST   connect to the server at HOST")
	f.Uint16VarP(&o.tcpPort, "port", "p", 18515, "exchange addresses over this TCP port")
	f.StringVarP(&o.device, "ib-dev", "d", "", "use this device (default: the one that reaches the peer)")
	f.Uint8VarP(&o.port, "ib-port", "i", 1, "use this port of the device")
	f.UintVarP(&o.size, "size", "s", v.bytes, "bytes of a message")
	if v.typ != verbs.QPTypeUD {
		f.UintVarP(&o.mtu, "mtu", "m", 1024, "path MTU: 256, 512, 1024, 2048 or 4096")
	}
	if v.srq {
		f.UintVarP(&o.numQP, "num-qp", "q", 16, "number of QPs")
	}
	f.UintVarP(&o.rxDepth, "rx-depth", "r", 500, "receives to post at a time")
	f.UintVarP(&o.iters, "iters", "n", 1000, "number of exchanges")
	f.Uint8VarP(&o.sl, "sl", "l", 0, "service level")
	f.BoolVarP(&o.events, "events", "e", false, "sleep until a completion event (default: poll)")
	f.IntVarP(&o.gidIndex, "gid-idx", "g", -1, "GID index of the port; below 0: by the peer's address")
	if v.typ == verbs.QPTypeRC {
		f.BoolVarP(&o.onDemand, "odp", "o", false, "on-demand paging")
	}
	if v.typ == verbs.QPTypeRC && !v.srq {
		f.BoolVarP(&o.implicitOnDemand, "iodp", "O", false, "implicit on-demand paging")
		f.BoolVarP(&o.prefetch, "prefetch", "P", false, "prefetch the on-demand region")
		f.BoolVarP(&o.timestamps, "ts", "t", false, "completions with timestamps")
		f.BoolVarP(&o.deviceMemory, "dm", "j", false, "device memory")
		f.BoolVarP(&o.newSend, "new_send", "N", false, "post with the work request builder")
	}
	f.BoolVarP(&o.validate, "chk", "c", false, "check what was received, at the server")
	if status, ok := f.Parse(args); !ok {
		return nil, status, false
	}
	if f.NArg() > 1 {
		return nil, f.Misused("more than one host"), false
	}
	o.server = f.Arg(0)
	if err := v.check(o); err != nil {
		return nil, f.Misused(err.Error()), false
	}
	return o, 0, true
}

func (v *variant) check(o *options) error {
	if o.port < 1 {
		return fmt.Errorf("port %d: must be at least 1", o.port)
	}
	if v.typ != verbs.QPTypeUD && verbs.MTUOf(int(o.mtu)) == 0 {
		return fmt.Errorf("path MTU %d: must be 256, 512, 1024, 2048 or 4096", o.mtu)
	}
	least := uint(0)
	if v.srq {
		least = 1
	}
	if o.size < least || o.size > maxSize {
		return fmt.Errorf("message size %d: must be %d to 2^31 bytes", o.size, least)
	}
	if o.sl > 15 {
		return fmt.Errorf("service level %d: must be 0 to 15", o.sl)
	}
	if o.rxDepth < 1 {
		return fmt.Errorf("rx_depth 0: must be at least 1")
	}
	if o.numQP < 1 || o.numQP >= maxQP {
		return fmt.Errorf("num_qp %d: must be 1 to %d", o.numQP, maxQP-1)
	}
	if o.numQP > o.rxDepth {
		return fmt.Errorf("rx_depth %d: must be at least %d, one receive for each QP", o.rxDepth, o.numQP)
	}
	if o.iters > 1<<31-1 {
		return fmt.Errorf("%d exchanges are too many", o.iters)
	}
	if o.implicitOnDemand {
		o.onDemand = true
	}
	switch {
	case o.onDemand && o.deviceMemory:
		return fmt.Errorf("a region in device memory can't be on demand")
	case o.prefetch && !o.onDemand:
		return fmt.Errorf("only an on-demand region can be prefetched")
	}
	return nil
}

package sock

import (
	"math"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Options are the sizes of a stream, as rsocket.Options describes them. 0 stands for the default.
type Options struct {
	SendBuf int // bytes of the send buffer; 131072, at least 4096
	RecvBuf int // bytes of the receive buffer; 131072, made even, at most 2^33 - 2
	SQSize  int // entries of the send queue, 16 to 65534; 384
	RQSize  int // messages that the peer may have under way, 16 to 65534; 384
	Inline  int // bytes that travel inside a request; 64
	IOMaps  int // IO maps that the peer may publish, 0 to 32512; 0
	// Polling is the spin budget of a call; below 0 calls do not poll.
	Polling time.Duration
	PathMTU verbs.MTU // 0: not fixed
}

// Limits of sizes.
const (
	MaxQueue   = 0xfffe
	minQueue   = 16
	MinSendBuf = 4096
	MinRecvBuf = 2
	maxRecvBuf = 2 * math.MaxUint32 // the peer learns half of it, in 32 bits
	// spareRecvs are receives beyond the credits of the peer, so that every control message finds one.
	spareRecvs = 8
	// minInline is the inline size in bytes that control messages need.
	minInline = 24
)

// WithDefaults fills in the fields that are zero.
func (o Options) WithDefaults() Options {
	c := Config()
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.SendBuf, c.SendBuf)
	def(&o.RecvBuf, c.RecvBuf)
	def(&o.SQSize, c.SQSize)
	def(&o.RQSize, c.RQSize)
	def(&o.IOMaps, c.IOMaps)
	def(&o.Inline, c.Inline)
	if o.Polling == 0 {
		o.Polling = c.Polling
	}
	return o
}

// effective brings the sizes within the limits of the device.
func (o Options) effective(dev *verbs.Context) (Options, error) {
	attr, err := dev.QueryDevice()
	if err != nil {
		return o, err
	}
	limit := min(MaxQueue, attr.MaxQPWR-spareRecvs)
	o.SQSize = min(max(o.SQSize, minQueue), min(limit, attr.MaxQPWR/requests(dev)))
	o.RQSize = min(max(o.RQSize, minQueue), limit)
	o.SendBuf = max(o.SendBuf, MinSendBuf)
	o.RecvBuf = int(min(int64(max(o.RecvBuf, MinRecvBuf)), maxRecvBuf)) &^ 1
	return o, nil
}

func HostOf(h *rdmacm.Host) *rdmacm.Host {
	if h == nil {
		return rdmacm.DefaultHost()
	}
	return h
}

package rsocket

import (
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Options are the sizes of a stream. A zero means the default: that of the configuration file, or else the built-in one. Both
// ends choose theirs for themselves.
type Options struct {
	SendBuf int // bytes of the send buffer; 131072, at least 4096
	RecvBuf int // bytes of the receive buffer; 131072, made even
	SQSize  int // entries of the send queue, 16 to 65534; 384
	RQSize  int // messages that the peer may have under way, 16 to 65534; 384
	Inline  int // bytes that travel inside a request; 64
	IOMaps  int // IO maps that the peer may publish, 0 to 32512; 0
	// Polling is how long a call looks again and again before it sleeps; 10 us, less than 0 for not at all. Where cores are to spare, a
	// millisecond makes a request and its answer several times as fast.
	Polling time.Duration
}

// Limits of sizes.
const (
	maxQueue   = 0xfffe
	minQueue   = 16
	minSendBuf = 4096
	minRecvBuf = 2
	// spareRecvs are receives beyond the peer's credits, for control messages, so that none of them finds no receive.
	spareRecvs = 8
	// minInline is what control messages need.
	minInline = 24
)

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	c := config()
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
		o.Polling = c.polling
	}
	return o
}

// effective brings the sizes within the limits of the device.
func (o Options) effective(dev *verbs.Context) (Options, error) {
	attr, err := dev.QueryDevice()
	if err != nil {
		return o, err
	}
	limit := min(maxQueue, attr.MaxQPWR-spareRecvs)
	o.SQSize = min(max(o.SQSize, minQueue), limit)
	o.RQSize = min(max(o.RQSize, minQueue), limit)
	o.SendBuf = max(o.SendBuf, minSendBuf)
	o.RecvBuf = max(o.RecvBuf, minRecvBuf) &^ 1
	return o, nil
}

func hostOf(h *rdmacm.Host) *rdmacm.Host {
	if h == nil {
		return rdmacm.DefaultHost()
	}
	return h
}

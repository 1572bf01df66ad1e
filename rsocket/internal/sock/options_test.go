package sock

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// The sizes of a stream are within the limits of the protocol and of its device. Over TCP a message takes two requests.
func TestSizesOfTheDevice(t *testing.T) {
	for _, over := range []verbs.TransportType{verbs.TransportIB, verbs.TransportIWARP} {
		dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
		d := &faulty{DriverDevice: driver.Of[verbs.DriverDevice](dev), transport: over}
		ctx := must(driver.NewDevice(d).Open())(t)
		attr := must(ctx.QueryDevice())(t)
		limit := min(MaxQueue, attr.MaxQPWR-spareRecvs)
		sq := limit
		if over == verbs.TransportIWARP {
			sq = min(limit, attr.MaxQPWR/2)
		}
		for _, c := range []struct{ asked, want Options }{
			{Options{SendBuf: 1, RecvBuf: 1, SQSize: 1, RQSize: 1}, Options{SendBuf: 4096, RecvBuf: 2, SQSize: 16, RQSize: 16}},
			{Options{SendBuf: 4097, RecvBuf: 4097, SQSize: 17, RQSize: 18},
				Options{SendBuf: 4097, RecvBuf: 4096, SQSize: 17, RQSize: 18}},
			{Options{SendBuf: 1 << 20, RecvBuf: 1 << 20, SQSize: 1 << 20, RQSize: 1 << 20},
				Options{SendBuf: 1 << 20, RecvBuf: 1 << 20, SQSize: sq, RQSize: limit}},
		} {
			if got, err := c.asked.effective(ctx); got != c.want || err != nil {
				t.Errorf("over %v %+v become %+v, want %+v; %v", over, c.asked, got, c.want, err)
			}
		}
		ok(t, ctx.Close())
	}
}

// Only what is missing has the default.
func TestSizesThatAreGiven(t *testing.T) {
	one := Options{SendBuf: 1, RecvBuf: 1, SQSize: 1, RQSize: 1, Inline: 1, IOMaps: 1, Polling: 1}
	if got := one.WithDefaults(); got != one {
		t.Errorf("%+v have become %+v", one, got)
	}
	none := Options{SendBuf: -1, RecvBuf: -1, SQSize: -1, RQSize: -1, Inline: -1, IOMaps: -1}
	if got := none.WithDefaults(); got != (Options{}).WithDefaults() {
		t.Errorf("%+v have become %+v", none, got)
	}
}

// A program that names no host has the default one.
func TestHostOfASocket(t *testing.T) {
	host := hosted(t)
	if HostOf(host) != host || HostOf(nil) != rdmacm.DefaultHost() {
		t.Errorf("%p is %p, none is %p", host, HostOf(host), HostOf(nil))
	}
}

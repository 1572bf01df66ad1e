//go:build !linux

package soft

import (
	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/verbs"
)

const streamsSupported = false

type streams struct{}

func (*streams) setTaps([]*pcap.Sink) {}

// ResetCounters and the other methods are not called: there are no iWARP devices.
func (*streams) ResetCounters() {}

func (*streams) count() counts { return nil }

func (*streams) describe(*device, *control.Device) []use { return nil }

func streamCounters(*verbs.QP) []engine.Counter { return nil }

func (*pd) createStream(uint32, *verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return nil, notOverStreams("a QP")
}

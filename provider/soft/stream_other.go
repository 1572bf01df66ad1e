//go:build !linux

package soft

import (
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/verbs"
)

const streamsSupported = false

type streams struct{}

func (*streams) setTaps([]*pcap.Sink) {}

func (*pd) createStream(uint32, *verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return nil, notOverStreams("a QP")
}

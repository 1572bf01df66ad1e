//go:build !linux

package soft

import "github.com/verbena-rdma/verbena/verbs"

const streamsSupported = false

type streams struct{}

func (*pd) createStream(uint32, *verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return nil, notOverStreams("a QP")
}

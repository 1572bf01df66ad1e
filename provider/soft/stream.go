package soft

import (
	"os"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// The devices of provider/iwarp are devices of this package whose QPs are connected by TCP (decision 37). They have
// the same contexts, domains, regions, windows, CQs and SRQs, and neither UDP sockets nor QP 1.

// streamPrefix is devicePrefix of iWARP devices.
const streamPrefix = "vrw_"

func init() { driver.Streams = soft.streams }

// streams lists the iWARP devices: one for each device that this package would have.
func (p *provider) streams() ([]verbs.DriverDevice, error) {
	if !streamsSupported {
		return nil, fail(verbs.ENODEV, "iWARP: only on Linux")
	}
	specs, err := listSpecs(os.Getenv(envDevices))
	for i := range specs {
		s := &specs[i]
		s.name, s.streams = streamPrefix+strings.TrimPrefix(s.name, devicePrefix), true
	}
	return p.of(specs), err
}

// notOverStreams refuses what an iWARP device lacks.
func notOverStreams(what string) error {
	return fail(verbs.EOPNOTSUPP, "%s: an iWARP device does not have it", what)
}

// Limits of an iWARP device. Those of READs are siw's.
const (
	streamSGE   = 32
	streamRdSGE = 1
)

// streamCaps changes the attributes of a device to those of an iWARP device.
func (d *device) streamCaps(a *verbs.DeviceAttr) {
	if !d.spec.streams {
		return
	}
	a.MaxSGE, a.MaxSGERd = streamSGE, streamRdSGE
	a.MaxMcastGrp, a.MaxMcastQPAttach, a.MaxTotalMcastQPAttach, a.MaxAH = 0, 0, 0, 0
	a.ODPCaps, a.XRCODPCaps, a.TMCaps = verbs.ODPCaps{}, 0, verbs.TMCaps{}
	a.PacketPacingCaps, a.TSOCaps = verbs.PacketPacingCaps{}, verbs.TSOCaps{}
	a.DeviceCapFlags = verbs.DevicePortActiveEvent | verbs.DeviceSysImageGUID | verbs.DeviceSRQResize |
		verbs.DeviceMemWindow | verbs.DeviceMemMgtExtensions | verbs.DeviceMemWindowType2B
}

// streamOps are the operations of QPs over streams.
const streamOps = verbs.QPExWithRDMAWrite | verbs.QPExWithRDMAWriteWithImm | verbs.QPExWithSend |
	verbs.QPExWithRDMARead | verbs.QPExWithAtomicCmpAndSwp | verbs.QPExWithAtomicFetchAndAdd | verbs.QPExWithLocalInv |
	verbs.QPExWithBindMW | verbs.QPExWithSendWithInv

// checkStreamQP refuses attributes that a QP over a stream does not have.
func checkStreamQP(num uint32, init *verbs.QPInitAttr) error {
	switch {
	case num != 0:
		return notOverStreams("QP 1")
	case init.Type != verbs.QPTypeRC:
		return notOverStreams("a QP of type " + init.Type.String())
	case init.SendOpsFlags&^streamOps != 0:
		return fail(verbs.EOPNOTSUPP, "SendOpsFlags %v: must be among %v", init.SendOpsFlags&^streamOps, streamOps)
	case init.Cap.MaxInlineData > maxInline:
		return fail(verbs.EINVAL, "MaxInlineData %d: must be 0 to %d", init.Cap.MaxInlineData, maxInline)
	}
	return checkQPEx(init)
}

// checkStreamModify refuses what is not for the program to change: a connection moves its QP to RTS.
func checkStreamModify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	switch attr.QPState {
	case verbs.QPSReset, verbs.QPSInit, verbs.QPSErr:
		return nil
	case verbs.QPSRTR:
		return fail(syscall.EINVAL, "a QP of an iWARP device is connected by rdmacm, which moves it to RTS")
	case verbs.QPSRTS:
		if mask&^(verbs.QPAttrState|verbs.QPAttrCurState) == 0 {
			return nil
		}
	}
	return notOverStreams(attr.QPState.String() + ", or a change of attributes in it")
}

package verbs

import (
	"fmt"
	"time"
)

// DriverUnsupported implements the optional methods of the Driver interfaces. They return EOPNOTSUPP. Each object of
// a driver embeds it and overrides the methods that the device supports.
type DriverUnsupported struct{}

// OpenXRCD is of DriverContext: XRC (DeviceXRC).
func (DriverUnsupported) OpenXRCD(int, int) (DriverXRCD, error) { return nil, lacks("XRC") }

// AllocDM is of DriverContext: device memory (DeviceAttr.MaxDMSize).
func (DriverUnsupported) AllocDM(uint64, uint32) (DriverDM, error) {
	return nil, lacks("memory of its own")
}

// CreateCounters is of DriverContext: counters of flow rules.
func (DriverUnsupported) CreateCounters() (DriverCounters, error) { return nil, lacks("counters") }

// CreateFlowActionESP is of DriverContext: ESP actions of flow rules.
func (DriverUnsupported) CreateFlowActionESP(*FlowActionESPAttr) (DriverFlowAction, error) {
	return nil, lacks("flow actions")
}

// CreateRWQIndTable is of DriverContext: indirection tables (DeviceAttr.RSSCaps).
func (DriverUnsupported) CreateRWQIndTable([]DriverWQ) (DriverRWQIndTable, error) {
	return nil, lacks("indirection tables")
}

// RawClock is of DriverContext: a clock that can be read (DeviceAttr.HCACoreClock).
func (DriverUnsupported) RawClock() (uint64, error) { return 0, lacks("clock that can be read") }

// CreateSRQ is of DriverPD: SRQs (DeviceAttr.MaxSRQ).
func (DriverUnsupported) CreateSRQ(*SRQInitAttr, DriverEvents) (DriverSRQ, error) {
	return nil, lacks("SRQs")
}

// CreateWQ is of DriverPD: work queues (DeviceAttr.MaxWQTypeRQ).
func (DriverUnsupported) CreateWQ(*WQInitAttr, DriverEvents) (DriverWQ, error) {
	return nil, lacks("work queues")
}

// RegDMMR is of DriverPD: device memory.
func (DriverUnsupported) RegDMMR(DriverDM, uint64, uint64, AccessFlags) (DriverMR, error) {
	return nil, lacks("memory of its own")
}

// RegDMABufMR is of DriverPD: memory of other devices.
func (DriverUnsupported) RegDMABufMR(uint64, uint64, uint64, int, AccessFlags) (DriverMR, error) {
	return nil, lacks("access to dma-buf memory")
}

// AllocNullMR is of DriverPD: null regions.
func (DriverUnsupported) AllocNullMR() (DriverMR, error) { return nil, lacks("null regions") }

// AdviseMR is of DriverPD: advice on regions (DeviceAttr.ODPCaps).
func (DriverUnsupported) AdviseMR(AdviseMRAdvice, AdviseMRFlags, []SGE) error {
	return lacks("use for advice")
}

// AllocMW is of DriverPD: memory windows (DeviceMemWindow).
func (DriverUnsupported) AllocMW(MWType) (DriverMW, error) { return nil, lacks("memory windows") }

// Rereg is of DriverMR: changing a region.
func (DriverUnsupported) Rereg(DriverPD, []byte, uint64, *AccessFlags) error {
	return lacks("way to change a region")
}

// Resize is of DriverCQ: changing a CQ's size.
func (DriverUnsupported) Resize(int) error { return lacks("way to resize a CQ") }

// PollOne is of DriverCQ: batches.
func (DriverUnsupported) PollOne(*WC, bool) (bool, error) {
	return false, lacks("batches of completions")
}

// Moderate is of DriverCQ: moderation (DeviceAttr.CQModCaps).
func (DriverUnsupported) Moderate(ModerateCQ) error { return lacks("moderation of completion events") }

// SRQN is of DriverSRQ: the number of an SRQ of type XRC; 0 for other types.
func (DriverUnsupported) SRQN() uint32 { return 0 }

// PostOps is of DriverSRQ: tag matching (DeviceAttr.TMCaps).
func (DriverUnsupported) PostOps([]OpsWR) (int, error) { return 0, lacks("tag matching") }

// AttachMcast is of DriverQP: multicast (DeviceAttr.MaxMcastGrp).
func (DriverUnsupported) AttachMcast(GID, uint16) error { return lacks("multicast") }

// DetachMcast is of DriverQP: multicast.
func (DriverUnsupported) DetachMcast(GID, uint16) error { return lacks("multicast") }

// PostSendAll is of DriverQP: lists of requests that are posted as one.
func (DriverUnsupported) PostSendAll([]SendWR) (int, error) {
	return 0, lacks("lists of requests that are posted as one")
}

// CreateFlow is of DriverQP: flow rules (DeviceManagedFlowSteering).
func (DriverUnsupported) CreateFlow(*FlowAttr) (DriverHandle, error) {
	return nil, lacks("flow steering for QPs of this type")
}

// ModifyRateLimit is of DriverQP: rate limits (DeviceAttr.PacketPacingCaps).
func (DriverUnsupported) ModifyRateLimit(QPRateLimitAttr) error {
	return lacks("rate limits for QPs of this type")
}

// SetKeepAlive is of DriverQP: checks of an idle peer.
func (DriverUnsupported) SetKeepAlive(time.Duration) error { return lacks("keep-alive") }

// QueryECE is of DriverQP: enhanced connection establishment.
func (DriverUnsupported) QueryECE() (ECE, error) { return ECE{}, lacks("ECE") }

// SetECE is of DriverQP: enhanced connection establishment.
func (DriverUnsupported) SetECE(ECE) error { return lacks("ECE") }

func lacks(what string) error { return fmt.Errorf("the device has no %s: %w", what, EOPNOTSUPP) }

package devinfo

import (
	"strconv"

	"github.com/verbena-rdma/verbena/verbs"
)

// The texts of ibv_devinfo that differ from those of libibverbs.

func portState(s verbs.PortState) string {
	switch s {
	case verbs.PortDown:
		return "PORT_DOWN"
	case verbs.PortInit:
		return "PORT_INIT"
	case verbs.PortArmed:
		return "PORT_ARMED"
	case verbs.PortActive:
		return "PORT_ACTIVE"
	}
	return "invalid state"
}

func physState(s verbs.PhysState) string {
	if s < verbs.PhysSleep || s > verbs.PhysPhyTest {
		return "invalid physical state"
	}
	return [...]string{
		verbs.PhysSleep:                     "SLEEP",
		verbs.PhysPolling:                   "POLLING",
		verbs.PhysDisabled:                  "DISABLED",
		verbs.PhysPortConfigurationTraining: "PORT_CONFIGURATION TRAINNING", // misspelt by the C tool
		verbs.PhysLinkUp:                    "LINK_UP",
		verbs.PhysLinkErrorRecovery:         "LINK_ERROR_RECOVERY",
		verbs.PhysPhyTest:                   "PHY TEST",
	}[s]
}

func mtu(m verbs.MTU) string {
	if n := m.Bytes(); n != 0 {
		return strconv.Itoa(n)
	}
	return "invalid MTU"
}

func linkLayer(l verbs.LinkLayer) string {
	switch l {
	case verbs.LinkLayerUnspecified:
		return "Unspecified"
	case verbs.LinkLayerInfiniBand:
		return "InfiniBand"
	case verbs.LinkLayerEthernet:
		return "Ethernet"
	}
	return "Unknown"
}

func virtualLanes(code uint8) string {
	if code < 1 || code > 5 {
		return "invalid value"
	}
	return [...]string{1: "1", 2: "2", 3: "4", 4: "8", 5: "15"}[code]
}

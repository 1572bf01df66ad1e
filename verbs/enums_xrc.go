package verbs

// SRQType is the kind of an SRQ (enum ibv_srq_type).
type SRQType uint32

// The SRQ types (IBV_SRQT_*).
const (
	SRQTypeBasic SRQType = 0
	SRQTypeXRC   SRQType = 1
	SRQTypeTM    SRQType = 2 // tag matching
)

var srqTypeNames = []string{"BASIC", "XRC", "TM"}

// String is the name without IBV_SRQT_.
func (t SRQType) String() string { return nameOf("SRQType", srqTypeNames, int64(t)) }

// SRQInitAttrMask names fields of SRQInitAttrEx (enum ibv_srq_init_attr_mask).
type SRQInitAttrMask uint32

// The fields of SRQInitAttrEx (IBV_SRQ_INIT_ATTR_*).
const (
	SRQInitType SRQInitAttrMask = 1 << 0
	SRQInitPD   SRQInitAttrMask = 1 << 1
	SRQInitXRCD SRQInitAttrMask = 1 << 2
	SRQInitCQ   SRQInitAttrMask = 1 << 3
	SRQInitTM   SRQInitAttrMask = 1 << 4 // TMCap

	srqInitAll = SRQInitType | SRQInitPD | SRQInitXRCD | SRQInitCQ | SRQInitTM
)

var srqInitNames = []string{"TYPE", "PD", "XRCD", "CQ", "TM"}

// String joins the names without IBV_SRQ_INIT_ATTR_.
func (m SRQInitAttrMask) String() string { return flagsOf(srqInitNames, uint64(m), "|") }

// XRCDInitAttrMask names fields of XRCDInitAttr (enum ibv_xrcd_init_attr_mask).
type XRCDInitAttrMask uint32

// The fields of XRCDInitAttr (IBV_XRCD_INIT_ATTR_*).
const (
	XRCDInitFD     XRCDInitAttrMask = 1 << 0
	XRCDInitOFlags XRCDInitAttrMask = 1 << 1

	xrcdInitAll = XRCDInitFD | XRCDInitOFlags
)

var xrcdInitNames = []string{"FD", "OFLAGS"}

// String joins the names without IBV_XRCD_INIT_ATTR_.
func (m XRCDInitAttrMask) String() string { return flagsOf(xrcdInitNames, uint64(m), "|") }

// QPOpenAttrMask names fields of QPOpenAttr (enum ibv_qp_open_attr_mask).
type QPOpenAttrMask uint32

// The fields of QPOpenAttr (IBV_QP_OPEN_ATTR_*).
const (
	QPOpenNum     QPOpenAttrMask = 1 << 0 // QPNum
	QPOpenXRCD    QPOpenAttrMask = 1 << 1
	QPOpenContext QPOpenAttrMask = 1 << 2
	QPOpenType    QPOpenAttrMask = 1 << 3

	qpOpenAll = QPOpenNum | QPOpenXRCD | QPOpenContext | QPOpenType
)

var qpOpenNames = []string{"NUM", "XRCD", "CONTEXT", "TYPE"}

// String joins the names without IBV_QP_OPEN_ATTR_.
func (m QPOpenAttrMask) String() string { return flagsOf(qpOpenNames, uint64(m), "|") }

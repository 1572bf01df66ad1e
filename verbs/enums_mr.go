package verbs

// AccessFlags are the access rights of a memory region, and the remote operations that a QP permits (enum
// ibv_access_flags). Local reading is always permitted.
type AccessFlags uint32

// The access flags (IBV_ACCESS_*).
const (
	AccessLocalWrite      AccessFlags = 1 << 0 // receives, results of READs and atomics
	AccessRemoteWrite     AccessFlags = 1 << 1 // incoming RDMA WRITE; needs AccessLocalWrite in a region
	AccessRemoteRead      AccessFlags = 1 << 2 // incoming RDMA READ
	AccessRemoteAtomic    AccessFlags = 1 << 3 // incoming atomics; needs AccessLocalWrite in a region
	AccessMWBind          AccessFlags = 1 << 4 // memory windows may be bound to the region
	AccessZeroBased       AccessFlags = 1 << 5 // addresses are offsets from the region's start
	AccessOnDemand        AccessFlags = 1 << 6 // on-demand paging
	AccessHugeTLB         AccessFlags = 1 << 7 // all pages are huge; with AccessOnDemand and memory only
	AccessFlushGlobal     AccessFlags = 1 << 8 // incoming FLUSHes of type FlushGlobal
	AccessFlushPersistent AccessFlags = 1 << 9 // incoming FLUSHes of type FlushPersistent; memory that keeps its content
	AccessRelaxedOrdering AccessFlags = 1 << 20

	accessKnown    AccessFlags = 1<<10 - 1 | AccessRelaxedOrdering
	accessOptional AccessFlags = 0x3ff << 20 // a device ignores unknown bits of these
)

var accessNames = []string{
	"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED", "ON_DEMAND", "HUGETLB",
	"FLUSH_GLOBAL", "FLUSH_PERSISTENT", 20: "RELAXED_ORDERING",
}

// String joins the names of the flags without IBV_ACCESS_.
func (f AccessFlags) String() string { return flagsOf(accessNames, uint64(f), "|") }

// ReregFlags name the properties that MR.Rereg changes (enum ibv_rereg_mr_flags).
type ReregFlags uint32

// The rereg flags (IBV_REREG_MR_*).
const (
	ReregChangeTranslation ReregFlags = 1 << 0 // the memory
	ReregChangePD          ReregFlags = 1 << 1
	ReregChangeAccess      ReregFlags = 1 << 2

	reregSupported ReregFlags = 0x7
)

var reregNames = []string{"CHANGE_TRANSLATION", "CHANGE_PD", "CHANGE_ACCESS"}

// String joins the names of the flags without IBV_REREG_MR_.
func (f ReregFlags) String() string { return flagsOf(reregNames, uint64(f), "|") }

// ReregMRErrCode is the state of the region after a failed MR.Rereg (enum ibv_rereg_mr_err_code).
type ReregMRErrCode int32

// The rereg error codes (IBV_REREG_MR_ERR_*).
const (
	ReregErrInput           ReregMRErrCode = -1 // the region is unchanged
	ReregErrDontForkNew     ReregMRErrCode = -2 // the region is unchanged
	ReregErrDoForkOld       ReregMRErrCode = -3 // the region is changed and valid
	ReregErrCmd             ReregMRErrCode = -4 // the region must not be used, only closed
	ReregErrCmdAndDoForkNew ReregMRErrCode = -5 // the region must not be used, only closed
)

var reregErrNames = []string{"", "ERR_INPUT", "ERR_DONT_FORK_NEW", "ERR_DO_FORK_OLD", "ERR_CMD",
	"ERR_CMD_AND_DO_FORK_NEW"}

// String returns the name without IBV_REREG_MR_.
func (c ReregMRErrCode) String() string { return nameOf("ReregMRErrCode", reregErrNames, -int64(c)) }

// AdviseMRAdvice is the kind of advice of PD.AdviseMR (enum ib_uverbs_advise_mr_advice).
type AdviseMRAdvice uint32

// The advice (IBV_ADVISE_MR_ADVICE_*).
const (
	AdvicePrefetch        AdviseMRAdvice = 0 // load the pages into memory, for reading
	AdvicePrefetchWrite   AdviseMRAdvice = 1 // load the pages into memory, for writing
	AdvicePrefetchNoFault AdviseMRAdvice = 2 // only pages that are in memory already
)

var adviceNames = []string{"PREFETCH", "PREFETCH_WRITE", "PREFETCH_NO_FAULT"}

// String returns the name without IBV_ADVISE_MR_ADVICE_.
func (a AdviseMRAdvice) String() string { return nameOf("AdviseMRAdvice", adviceNames, int64(a)) }

// AdviseMRFlags modify PD.AdviseMR (enum ib_uverbs_advise_mr_flag).
type AdviseMRFlags uint32

// AdviseMRFlush makes AdviseMR return only when it is done (IBV_ADVISE_MR_FLAG_FLUSH).
const AdviseMRFlush AdviseMRFlags = 1 << 0

// String joins the names of the flags without IBV_ADVISE_MR_FLAG_.
func (f AdviseMRFlags) String() string { return flagsOf([]string{"FLUSH"}, uint64(f), "|") }

// MWType is the type of a memory window (enum ibv_mw_type).
type MWType uint32

// The memory window types (IBV_MW_TYPE_*).
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

var mwTypeNames = []string{"", "TYPE_1", "TYPE_2"}

// String returns the name without IBV_MW_.
func (t MWType) String() string { return nameOf("MWType", mwTypeNames, int64(t)) }

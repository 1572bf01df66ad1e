package verbs

import (
	"errors"
	"fmt"
	"math/bits"
)

// RWQIndTable is an indirection table: it maps the hash of a frame to a WQ (struct ibv_rwq_ind_table). It is safe for
// concurrent use.
type RWQIndTable struct {
	ctx      *Context
	drv      DriverRWQIndTable
	num      uint32
	wqs      []*WQ
	lifetime lifetime
}

// RWQIndTableInitAttr holds the attributes of a new indirection table (struct ibv_rwq_ind_table_init_attr).
type RWQIndTableInitAttr struct {
	LogIndTblSize uint32 // base 2 logarithm of the table's size
	IndTbl        []*WQ  // 1<<LogIndTblSize WQs of type RQ; a WQ may occur several times
}

// CreateRWQIndTable creates an indirection table, for PD.CreateQP (ibv_create_rwq_ind_table). init is copied. EINVAL
// for bad WQs, or a size that differs from len(IndTbl) or is above RSSCaps.MaxRWQIndirectionTableSize. ENOSYS if the
// device has no indirection tables, ENOMEM without resources.
func (vctx *Context) CreateRWQIndTable(init *RWQIndTableInitAttr) (*RWQIndTable, error) {
	const op = "create_rwq_ind_table"
	if init == nil {
		return nil, newError(op, vctx.obj(), EINVAL, "the attributes are nil")
	}
	if vctx.attr.RSSCaps.MaxRWQIndirectionTableSize == 0 {
		return nil, newError(op, vctx.obj(), ENOSYS, "the device has no indirection tables")
	}
	if err := init.check(vctx, vctx.attr.RSSCaps.MaxRWQIndirectionTableSize); err != nil {
		return nil, badInput(op, vctx.obj(), err)
	}
	t := &RWQIndTable{ctx: vctx, wqs: append([]*WQ(nil), init.IndTbl...)}
	if err := vctx.checkRemoved(op, vctx); err != nil {
		return nil, err
	}
	if err := use(op, kindRWQIndTable, t.parents()); err != nil {
		return nil, err
	}
	drivers := make([]DriverWQ, len(t.wqs))
	for i, wq := range t.wqs {
		drivers[i] = wq.drv
	}
	var err error
	if t.drv, err = vctx.drv.CreateRWQIndTable(drivers); err != nil {
		drop(kindRWQIndTable, t.parents())
		return nil, driverError(op, vctx.obj(), err)
	}
	t.num = t.drv.Num()
	return t, nil
}

// check checks the attributes of a new table.
func (i *RWQIndTableInitAttr) check(vctx *Context, most uint32) error {
	switch {
	case i.LogIndTblSize >= 32 || uint32(1)<<i.LogIndTblSize > most:
		return fmt.Errorf("LogIndTblSize %d: must be 0 to %d", i.LogIndTblSize, bits.Len32(most)-1)
	case len(i.IndTbl) != 1<<i.LogIndTblSize:
		return fmt.Errorf("%d WQs: with LogIndTblSize %d there must be %d", len(i.IndTbl), i.LogIndTblSize,
			1<<i.LogIndTblSize)
	}
	for n, wq := range i.IndTbl {
		switch {
		case wq == nil:
			return fmt.Errorf("WQ %d is nil", n)
		case wq.pd.ctx != vctx:
			return fmt.Errorf("WQ %d belongs to another context", n)
		case wq.init.Type != WQTypeRQ:
			return fmt.Errorf("WQ %d is of type %v: must be RQ", n, wq.init.Type)
		}
	}
	return nil
}

// parents lists the context and the WQs, each as often as it occurs in the table.
func (t *RWQIndTable) parents() (list []parent) {
	list = append(list, parent{&t.ctx.lifetime, t.ctx})
	for _, wq := range t.wqs {
		list = append(list, parent{&wq.lifetime, wq})
	}
	return list
}

// Num returns the table's number (ind_tbl_num).
func (t *RWQIndTable) Num() uint32 { return t.num }

// Context returns the context of the table.
func (t *RWQIndTable) Context() *Context { return t.ctx }

func (t *RWQIndTable) obj() string { return "indirection table of " + t.ctx.obj() }

// Close destroys the table (ibv_destroy_rwq_ind_table). EBUSY while QPs use it.
func (t *RWQIndTable) Close() error {
	const op = "destroy_rwq_ind_table"
	if err := t.lifetime.close(op, t); err != nil {
		return err
	}
	if err := destroyed(t.drv.Destroy()); err != nil {
		t.lifetime.reopen()
		return driverError(op, t.obj(), err)
	}
	drop(kindRWQIndTable, t.parents())
	return t.ctx.ended(op, t)
}

// RxHashFunction is a hash function for frames (enum ibv_rx_hash_function_flags).
type RxHashFunction uint8

// RxHashToeplitz is the Toeplitz hash (IBV_RX_HASH_FUNC_TOEPLITZ).
const RxHashToeplitz RxHashFunction = 1 << 0

// String joins the names of the functions without IBV_RX_HASH_FUNC_.
func (f RxHashFunction) String() string { return flagsOf([]string{"TOEPLITZ"}, uint64(f), "|") }

// RxHashFields is the set of hashed fields of a frame (enum ibv_rx_hash_fields).
type RxHashFields uint64

// The fields (IBV_RX_HASH_*).
const (
	RxHashSrcIPv4    RxHashFields = 1 << 0
	RxHashDstIPv4    RxHashFields = 1 << 1
	RxHashSrcIPv6    RxHashFields = 1 << 2
	RxHashDstIPv6    RxHashFields = 1 << 3
	RxHashSrcPortTCP RxHashFields = 1 << 4
	RxHashDstPortTCP RxHashFields = 1 << 5
	RxHashSrcPortUDP RxHashFields = 1 << 6
	RxHashDstPortUDP RxHashFields = 1 << 7
	RxHashIPsecSPI   RxHashFields = 1 << 8
	RxHashInner      RxHashFields = 1 << 31 // of the headers inside of a tunnel

	rxHashIPv4 = RxHashSrcIPv4 | RxHashDstIPv4
	rxHashIPv6 = RxHashSrcIPv6 | RxHashDstIPv6
	rxHashTCP  = RxHashSrcPortTCP | RxHashDstPortTCP
	rxHashUDP  = RxHashSrcPortUDP | RxHashDstPortUDP
	rxHashAll  = rxHashIPv4 | rxHashIPv6 | rxHashTCP | rxHashUDP | RxHashIPsecSPI | RxHashInner
)

var rxHashNames = []string{
	"SRC_IPV4", "DST_IPV4", "SRC_IPV6", "DST_IPV6", "SRC_PORT_TCP", "DST_PORT_TCP", "SRC_PORT_UDP", "DST_PORT_UDP",
	"IPSEC_SPI", 31: "INNER",
}

// String joins the names of the fields without IBV_RX_HASH_.
func (f RxHashFields) String() string { return flagsOf(rxHashNames, uint64(f), "|") }

// RxHashKeyLen is the length of a Toeplitz key in bytes.
const RxHashKeyLen = 40

// RxHashConf configures the hash of frames (struct ibv_rx_hash_conf). The fields of a frame are hashed in the order
// source address, destination address, source port, destination port (or SPI). The low bits of the hash are the index
// in the table. A frame without any of the fields goes to the first WQ. Fields of IPv4 and IPv6 exclude each other,
// as do those of TCP, UDP and IPsec.
type RxHashConf struct {
	Function RxHashFunction // RxHashToeplitz
	Key      []byte         // RxHashKeyLen bytes
	Fields   RxHashFields   // may be 0 only with a table of one WQ
}

// checkRSS checks the attributes of a QP with an indirection table.
func (a *QPInitAttr) checkRSS(vctx *Context) error {
	table, conf := a.RWQIndTbl, a.RxHashConf
	switch {
	case table == nil && conf == nil:
		return nil
	case table == nil || conf == nil:
		return errors.New("RWQIndTbl and RxHashConf must be set together")
	case a.Type != QPTypeRawPacket && a.Type != QPTypeUD:
		return fmt.Errorf("QP type %v cannot have an indirection table: must be RAW_PACKET or UD", a.Type)
	case table.ctx != vctx:
		return errors.New("the indirection table belongs to another context")
	case a.RecvCQ != nil || a.SRQ != nil || a.Cap.MaxRecvWR != 0 || a.Cap.MaxRecvSGE != 0:
		return errors.New("a QP with an indirection table has no receives of its own: RecvCQ, SRQ, MaxRecvWR and " +
			"MaxRecvSGE must be zero")
	case a.CreateFlags&(QPCreateScatterFCS|QPCreateCVLANStripping) != 0:
		return fmt.Errorf("%v with an indirection table: set it on the WQs",
			a.CreateFlags&(QPCreateScatterFCS|QPCreateCVLANStripping))
	case conf.Function != RxHashToeplitz:
		return fmt.Errorf("unknown hash function %v; must be TOEPLITZ", conf.Function)
	case len(conf.Key) != RxHashKeyLen:
		return fmt.Errorf("the key has %d bytes: must have %d", len(conf.Key), RxHashKeyLen)
	}
	return conf.Fields.check(len(table.wqs))
}

// check checks hash fields, for a table of n WQs.
func (f RxHashFields) check(n int) error {
	l4 := 0
	for _, group := range []RxHashFields{rxHashTCP, rxHashUDP, RxHashIPsecSPI} {
		if f&group != 0 {
			l4++
		}
	}
	switch {
	case f&^rxHashAll != 0:
		return fmt.Errorf("unknown fields %v; must be of %v", f&^rxHashAll, rxHashAll)
	case f&rxHashIPv4 != 0 && f&rxHashIPv6 != 0:
		return fmt.Errorf("hash fields %v: IPv4 and IPv6 exclude each other", f)
	case l4 > 1:
		return fmt.Errorf("hash fields %v: TCP, UDP and IPsec exclude each other", f)
	case f == RxHashInner:
		return errors.New("hash field INNER needs other fields")
	case f == 0 && n > 1:
		return fmt.Errorf("no hash fields with %d WQs: must have hash fields or 1 WQ", n)
	}
	return nil
}

package verbs

import (
	"errors"
	"fmt"
	"math/bits"
)

// RWQIndTable is an indirection table: which WQ takes the frames of which hash (struct ibv_rwq_ind_table).
type RWQIndTable struct {
	ctx  *Context
	drv  RWQIndTableDriver
	wqs  []*WQ
	life life
}

// RWQIndTableInitAttr says what indirection table to make (struct ibv_rwq_ind_table_init_attr).
type RWQIndTableInitAttr struct {
	LogIndTblSize uint32 // of 2
	IndTbl        []*WQ  // 1<<LogIndTblSize of them, of type RQ; the same one may be there several times
	CompMask      uint32 // 0
}

// CreateRWQIndTable makes an indirection table (ibv_create_rwq_ind_table), for PD.CreateQPEx. EINVAL for a size that is not that of IndTbl or above
// RSSCaps.MaxRWQIndirectionTableSize, and for bad WQs; ENOSYS if the device has no such tables; ENOMEM without resources.
func (ctx *Context) CreateRWQIndTable(init *RWQIndTableInitAttr) (*RWQIndTable, error) {
	const op = "create_rwq_ind_table"
	if init == nil {
		return nil, newError(op, ctx.obj(), EINVAL, "there are no attributes")
	}
	creator, ok := ctx.drv.(RWQIndTableCreator)
	if !ok {
		return nil, newError(op, ctx.obj(), ENOSYS, "the device has no indirection tables")
	}
	dev, err := ctx.QueryDeviceEx()
	if err != nil {
		return nil, err
	}
	if err := init.check(ctx, dev.RSSCaps.MaxRWQIndirectionTableSize); err != nil {
		return nil, badInput(op, ctx.obj(), err)
	}
	t := &RWQIndTable{ctx: ctx, wqs: append([]*WQ(nil), init.IndTbl...)}
	if err := use(op, kindRWQIndTable, t.parents()); err != nil {
		return nil, err
	}
	drivers := make([]WQDriver, len(t.wqs))
	for i, wq := range t.wqs {
		drivers[i] = wq.drv
	}
	if t.drv, err = creator.CreateRWQIndTable(drivers); err != nil {
		drop(kindRWQIndTable, t.parents())
		return nil, driverError(op, ctx.obj(), err)
	}
	return t, nil
}

// check says what is wrong with the attributes of a new table.
func (i *RWQIndTableInitAttr) check(ctx *Context, most uint32) error {
	switch {
	case i.CompMask != 0:
		return fmt.Errorf("unknown attributes %#x; there are none", i.CompMask)
	case i.LogIndTblSize >= 32 || uint32(1)<<i.LogIndTblSize > most:
		return fmt.Errorf("LogIndTblSize %d is not possible; 0 to %d are", i.LogIndTblSize, bits.Len32(most)-1)
	case len(i.IndTbl) != 1<<i.LogIndTblSize:
		return fmt.Errorf("%d WQs are there; LogIndTblSize %d means %d", len(i.IndTbl), i.LogIndTblSize, 1<<i.LogIndTblSize)
	}
	for n, wq := range i.IndTbl {
		switch {
		case wq == nil:
			return fmt.Errorf("WQ %d is missing", n)
		case wq.pd.ctx != ctx:
			return fmt.Errorf("WQ %d belongs to another context", n)
		case wq.init.Type != WQTypeRQ:
			return fmt.Errorf("WQ %d is of type %v; RQ is possible", n, wq.init.Type)
		}
	}
	return nil
}

// parents lists the WQs, each as often as it is there.
func (t *RWQIndTable) parents() (list []parent) {
	list = append(list, parent{&t.ctx.life, t.ctx.obj()})
	for _, wq := range t.wqs {
		list = append(list, parent{&wq.life, wq.obj()})
	}
	return list
}

// Num is the table's number (ind_tbl_num).
func (t *RWQIndTable) Num() uint32 { return t.drv.Num() }

// Context is the context that the table belongs to.
func (t *RWQIndTable) Context() *Context { return t.ctx }

// Driver gives providers the driver object of the table.
func (t *RWQIndTable) Driver() RWQIndTableDriver { return t.drv }

func (t *RWQIndTable) obj() string { return "indirection table of " + t.ctx.obj() }

// Close destroys the table (ibv_destroy_rwq_ind_table). EBUSY while QPs use it.
func (t *RWQIndTable) Close() error {
	const op = "destroy_rwq_ind_table"
	if err := t.life.end(op, t.obj()); err != nil {
		return err
	}
	if err := destroyed(t.drv.Destroy()); err != nil {
		t.life.revive()
		return driverError(op, t.obj(), err)
	}
	drop(kindRWQIndTable, t.parents())
	return nil
}

// RxHashFunction is how frames are hashed (enum ibv_rx_hash_function_flags).
type RxHashFunction uint8

// RxHashToeplitz is the Toeplitz hash (IBV_RX_HASH_FUNC_TOEPLITZ).
const RxHashToeplitz RxHashFunction = 1 << 0

// String joins the names of the functions without IBV_RX_HASH_FUNC_.
func (f RxHashFunction) String() string { return flagsOf([]string{"TOEPLITZ"}, uint64(f), "|") }

// RxHashFields is what of a frame is hashed (enum ibv_rx_hash_fields).
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
	"SRC_IPV4", "DST_IPV4", "SRC_IPV6", "DST_IPV6", "SRC_PORT_TCP", "DST_PORT_TCP", "SRC_PORT_UDP", "DST_PORT_UDP", "IPSEC_SPI", 31: "INNER",
}

// String joins the names of the fields without IBV_RX_HASH_.
func (f RxHashFields) String() string { return flagsOf(rxHashNames, uint64(f), "|") }

// RxHashKeyLen is the length of a Toeplitz key in bytes.
const RxHashKeyLen = 40

// RxHashConf says how frames are hashed (struct ibv_rx_hash_conf). The fields that a frame has are hashed in the order source address,
// destination address, source port, destination port (or SPI); the low bits of the hash are the index in the table. A frame without any of them goes
// to the first WQ. Fields of IPv4 and IPv6 do not go together, nor do those of TCP, UDP and IPsec.
type RxHashConf struct {
	Function RxHashFunction // RxHashToeplitz
	Key      []byte         // RxHashKeyLen bytes
	Fields   RxHashFields   // none only with a table of one WQ
}

// checkRSS looks at the receive side of a QP that has an indirection table, or no such thing.
func (a *QPInitAttrEx) checkRSS(ctx *Context) error {
	table, conf := a.RWQIndTbl, a.RxHashConf
	switch {
	case table == nil && conf == nil && a.CompMask&(QPInitIndTable|QPInitRxHash) == 0:
		return nil
	case table == nil || conf == nil:
		return errors.New("an indirection table and the hash for it go together")
	case a.Type != QPTypeRawPacket && a.Type != QPTypeUD:
		return fmt.Errorf("a QP of type %v cannot have an indirection table; RAW_PACKET and UD can", a.Type)
	case table.ctx != ctx:
		return errors.New("the indirection table belongs to another context")
	case a.RecvCQ != nil || a.SRQ != nil || a.Cap.MaxRecvWR != 0 || a.Cap.MaxRecvSGE != 0:
		return errors.New("a QP with an indirection table has no receives of its own; RecvCQ, SRQ, MaxRecvWR and MaxRecvSGE must be zero")
	case a.CreateFlags&(QPCreateScatterFCS|QPCreateCVLANStripping) != 0:
		return fmt.Errorf("%v is a matter of the WQs of an indirection table", a.CreateFlags&(QPCreateScatterFCS|QPCreateCVLANStripping))
	case conf.Function != RxHashToeplitz:
		return fmt.Errorf("%v is not a hash function; TOEPLITZ is", conf.Function)
	case len(conf.Key) != RxHashKeyLen:
		return fmt.Errorf("the key has %d bytes; it must have %d", len(conf.Key), RxHashKeyLen)
	}
	return conf.Fields.check(len(table.wqs))
}

// check says what is wrong with fields to be hashed, for a table of n WQs.
func (f RxHashFields) check(n int) error {
	l4 := 0
	for _, group := range []RxHashFields{rxHashTCP, rxHashUDP, RxHashIPsecSPI} {
		if f&group != 0 {
			l4++
		}
	}
	switch {
	case f&^rxHashAll != 0:
		return fmt.Errorf("unknown fields %v; there are %v", f&^rxHashAll, rxHashAll)
	case f&rxHashIPv4 != 0 && f&rxHashIPv6 != 0:
		return fmt.Errorf("%v: a QP hashes fields of IPv4 or of IPv6, not of both", f)
	case l4 > 1:
		return fmt.Errorf("%v: a QP hashes fields of TCP, UDP or IPsec, of one of them", f)
	case f == RxHashInner:
		return errors.New("INNER says where fields are; it needs some")
	case f == 0 && n > 1:
		return fmt.Errorf("without fields to hash a table of %d WQs has no use; 1 is possible", n)
	}
	return nil
}

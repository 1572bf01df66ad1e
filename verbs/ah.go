package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// AH is an address handle: the way to a destination, for UD sends (struct ibv_ah). One AH serves all QPs of
// its PD. It is safe for concurrent use.
type AH struct {
	pd   *PD
	drv  AHDriver
	attr AHAttr
	life life
}

// CreateAH makes an address handle (ibv_create_ah). EINVAL for a bad attribute; on RoCE IsGlobal is compulsory.
// ENOMEM without resources.
func (pd *PD) CreateAH(attr *AHAttr) (*AH, error) { return pd.createAH("create_ah", attr) }

func (pd *PD) createAH(op string, attr *AHAttr) (*AH, error) {
	if attr == nil {
		return nil, newError(op, pd.obj(), EINVAL, "there are no attributes")
	}
	if !pd.life.use(kindAH) {
		return nil, errClosed(op, pd.obj())
	}
	var drv AHDriver
	err := badInput(op, pd.obj(), pd.ctx.checkAH(attr))
	if err == nil {
		drv, err = pd.drv.CreateAH(*attr)
		err = driverError(op, pd.obj(), err)
	}
	if err != nil {
		pd.life.drop(kindAH)
		return nil, err
	}
	return &AH{pd: pd, drv: drv, attr: *attr}, nil
}

// checkAH says what is wrong with the way to a destination, for AHs and for the paths of connected QPs. The caller
// keeps the context open.
func (ctx *Context) checkAH(a *AHAttr) error {
	if a.PortNum < 1 || a.PortNum > ctx.attr.PhysPortCnt {
		return fmt.Errorf("port %d of the address does not exist; ports are 1 to %d", a.PortNum, ctx.attr.PhysPortCnt)
	}
	port, err := ctx.drv.QueryPort(a.PortNum)
	if err != nil {
		return err
	}
	switch {
	case a.SL > 15:
		return fmt.Errorf("SL %d is too large; 0 to 15 are allowed", a.SL)
	case a.SrcPathBits > 127:
		return fmt.Errorf("source path bits %d are too large; 0 to 127 are allowed", a.SrcPathBits)
	case !a.IsGlobal && (port.LinkLayer == LinkLayerEthernet || port.Flags&QPFGRHRequired != 0):
		return errors.New("the address has no GRH, which RoCE and ports with GRH_REQUIRED need: set IsGlobal and GRH")
	case !a.IsGlobal:
		return nil
	case a.GRH.FlowLabel > 0xfffff:
		return fmt.Errorf("flow label %#x is too large; it has 20 bits", a.GRH.FlowLabel)
	case a.GRH.DGID.IsZero():
		return errors.New("the destination GID is empty")
	case a.GRH.SGIDIndex < 0 || a.GRH.SGIDIndex >= port.GIDTblLen:
		return fmt.Errorf("SGID index %d is outside the GID table; 0 to %d are allowed", a.GRH.SGIDIndex, port.GIDTblLen-1)
	}
	table, err := ctx.drv.GIDTable(a.PortNum)
	if err != nil {
		return err
	}
	if a.GRH.SGIDIndex >= len(table) || table[a.GRH.SGIDIndex].GID.IsZero() {
		return fmt.Errorf("entry %d of the GID table is empty", a.GRH.SGIDIndex)
	}
	return nil
}

// PD is the protection domain that the AH is in.
func (ah *AH) PD() *PD { return ah.pd }

// Attr is what the AH was made with.
func (ah *AH) Attr() AHAttr { return ah.attr }

// Driver gives providers the driver object behind a handle that a work request names.
func (ah *AH) Driver() AHDriver { return ah.drv }

func (ah *AH) obj() string {
	if ah.attr.IsGlobal {
		return "AH to " + ah.attr.GRH.DGID.String()
	}
	return fmt.Sprintf("AH to LID %d", ah.attr.DLID)
}

// Close destroys the AH (ibv_destroy_ah). Sends that use it should have completed before.
func (ah *AH) Close() error {
	if err := ah.life.end("destroy_ah", ah.obj()); err != nil {
		return err
	}
	if err := destroyed(ah.drv.Destroy()); err != nil {
		ah.life.revive()
		return driverError("destroy_ah", ah.obj(), err)
	}
	ah.pd.life.drop(kindAH)
	return nil
}

// InitAHFromWC makes the attributes of an AH to the sender of a received UD message (ibv_init_ah_from_wc). grh is the
// first 40 bytes of the receive buffer; it is read only if the completion has WCGRH. EINVAL if the completion failed,
// the message came to a multicast group, or its destination is not in the port's GID table.
func (ctx *Context) InitAHFromWC(port uint8, wc *WC, grh []byte) (AHAttr, error) {
	const op = "init_ah_from_wc"
	if err := ctx.enter(op); err != nil {
		return AHAttr{}, err
	}
	defer ctx.leave()
	return ctx.initAHFromWC(op, port, wc, grh)
}

func (ctx *Context) initAHFromWC(op string, port uint8, wc *WC, grh []byte) (AHAttr, error) {
	if err := ctx.checkPort(op, port); err != nil {
		return AHAttr{}, err
	}
	if wc == nil || wc.Status != WCSuccess {
		return AHAttr{}, newError(op, ctx.obj(), EINVAL, "the completion is not one of a received message")
	}
	attr := AHAttr{DLID: wc.SLID, SL: wc.SL, SrcPathBits: wc.DLIDPathBits, PortNum: port}
	if wc.WCFlags&WCGRH == 0 {
		return attr, nil
	}
	h, err := parseGRH(grh)
	if err != nil {
		return AHAttr{}, badInput(op, ctx.obj(), err)
	}
	if h.dgid.IsMulticast() {
		return AHAttr{}, newError(op, ctx.obj(), EINVAL, "the message came to the multicast group %v, which is no address to answer from; make an AHAttr of the sender's GID, %v", h.dgid, h.sgid)
	}
	table, err := ctx.gidTable(op, port)
	if err != nil {
		return AHAttr{}, err
	}
	for _, e := range table {
		if e.GID == h.dgid && !e.GID.IsZero() {
			attr.IsGlobal = true
			attr.GRH = GlobalRoute{DGID: h.sgid, FlowLabel: h.flowLabel, SGIDIndex: e.Index, HopLimit: h.hopLimit, TrafficClass: h.trafficClass}
			return attr, nil
		}
	}
	return AHAttr{}, newError(op, ctx.obj(), EINVAL, "the message came to %v, which is not in the GID table of port %d", h.dgid, port)
}

// CreateAHFromWC is InitAHFromWC and CreateAH in one (ibv_create_ah_from_wc).
func (pd *PD) CreateAHFromWC(port uint8, wc *WC, grh []byte) (*AH, error) {
	const op = "create_ah_from_wc"
	if err := pd.ctx.enter(op); err != nil {
		return nil, err
	}
	attr, err := pd.ctx.initAHFromWC(op, port, wc, grh)
	pd.ctx.leave()
	if err != nil {
		return nil, err
	}
	return pd.createAH(op, &attr)
}

// grhSize is the space of the GRH in front of a received UD message, in bytes (struct ibv_grh).
const grhSize = 40

type grhFields struct {
	sgid, dgid   GID
	flowLabel    uint32
	trafficClass uint8
	hopLimit     uint8
}

// parseGRH reads the network header in front of a received UD message: a GRH, which is an IPv6 header, or, on RoCEv2
// over IPv4, an IPv4 header in the last 20 bytes.
func parseGRH(b []byte) (h grhFields, err error) {
	if len(b) < grhSize {
		return h, fmt.Errorf("the completion says GRH, but %d bytes of it are given; it has 40", len(b))
	}
	v4 := b[20:grhSize]
	if isIPv4(v4) && (b[0]>>4 != 6 || ipv4Sum(v4) == 0xffff) {
		return grhFields{
			sgid:         GIDFromAddr(netip.AddrFrom4([4]byte(v4[12:16]))),
			dgid:         GIDFromAddr(netip.AddrFrom4([4]byte(v4[16:20]))),
			trafficClass: v4[1],
			hopLimit:     v4[8],
		}, nil
	}
	if b[0]>>4 != 6 {
		return h, errors.New("the first 40 bytes of the receive buffer hold no network header")
	}
	word := binary.BigEndian.Uint32(b)
	return grhFields{
		sgid: GID(b[8:24]), dgid: GID(b[24:40]), flowLabel: word & 0xfffff, trafficClass: uint8(word >> 20), hopLimit: b[7],
	}, nil
}

// isIPv4 recognises an IPv4 header without options.
func isIPv4(h []byte) bool { return h[0] == 0x45 }

// ipv4Sum is the ones' complement sum of an IPv4 header, 0xffff if its checksum is right. Without it an IPv6 address
// that looks like an IPv4 header would be taken for one.
func ipv4Sum(h []byte) uint32 {
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return sum
}

// FlowLabelToUDPSourcePort is the UDP source port of packets with a flow label (ibv_flow_label_to_udp_sport), from 0xC000 to 0xFFFF. The
// software device sends from it, so that the network can spread connections over its links, and whoever watches it can find them. Of a
// label only the lower 20 bits count. With the label 0 devices choose a port themselves.
func FlowLabelToUDPSourcePort(label uint32) uint16 {
	return 0xC000 | uint16(label&0x3FFF^label>>14&0x3F)
}

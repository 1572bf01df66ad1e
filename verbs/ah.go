package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// AH is an address handle: the address of a destination of UD sends (struct ibv_ah). One AH serves all QPs of its PD.
// It is safe for concurrent use.
type AH struct {
	pd       *PD
	drv      DriverHandle
	attr     AHAttr
	lifetime lifetime
}

// CreateAH creates an address handle (ibv_create_ah). attr is copied. The AH is valid until Close.
//
// Errors: EINVAL for a bad attribute; on RoCE IsGlobal must be set. ENOMEM without resources.
func (pd *PD) CreateAH(attr *AHAttr) (*AH, error) { return pd.createAH("create_ah", attr) }

func (pd *PD) createAH(op string, attr *AHAttr) (*AH, error) {
	if attr == nil {
		return nil, newError(op, pd.obj(), EINVAL, "the attributes are nil")
	}
	if err := pd.use(op, kindAH); err != nil {
		return nil, err
	}
	var drv DriverHandle
	err := badInput(op, pd.obj(), pd.ctx.checkAH(attr))
	if err == nil {
		drv, err = pd.drv.CreateAH(*attr)
		err = driverError(op, pd.obj(), err)
	}
	if err != nil {
		pd.lifetime.drop(kindAH)
		return nil, err
	}
	return &AH{pd: pd, drv: drv, attr: *attr}, nil
}

// checkAH checks an address, for AHs and for the paths of connected QPs. The caller keeps the context open.
func (vctx *Context) checkAH(a *AHAttr) error {
	if a.PortNum < 1 || a.PortNum > vctx.attr.PhysPortCnt {
		return fmt.Errorf("port %d of the address: must be 1 to %d", a.PortNum, vctx.attr.PhysPortCnt)
	}
	port, err := vctx.drv.QueryPort(a.PortNum)
	if err != nil {
		return err
	}
	switch {
	case a.SL > 15:
		return fmt.Errorf("SL %d: must be 0 to 15", a.SL)
	case a.SrcPathBits > 127:
		return fmt.Errorf("source path bits %d: must be 0 to 127", a.SrcPathBits)
	case !a.IsGlobal && (port.LinkLayer == LinkLayerEthernet || port.Flags&QPFGRHRequired != 0):
		return errors.New("the address has no GRH, which RoCE and ports with GRH_REQUIRED need: set IsGlobal and GRH")
	case !a.IsGlobal:
		return nil
	case a.GRH.FlowLabel > 0xfffff:
		return fmt.Errorf("flow label %#x: must be 0 to 0xfffff", a.GRH.FlowLabel)
	case a.GRH.DGID.IsZero():
		return errors.New("the destination GID is empty")
	case a.GRH.SGIDIndex < 0 || a.GRH.SGIDIndex >= port.GIDTblLen:
		return fmt.Errorf("SGID index %d: must be 0 to %d", a.GRH.SGIDIndex, port.GIDTblLen-1)
	}
	table, err := vctx.drv.GIDTable(a.PortNum)
	if err != nil {
		return err
	}
	if a.GRH.SGIDIndex >= len(table) || table[a.GRH.SGIDIndex].GID.IsZero() {
		return fmt.Errorf("entry %d of the GID table is empty", a.GRH.SGIDIndex)
	}
	return nil
}

// PD returns the protection domain of the AH.
func (ah *AH) PD() *PD { return ah.pd }

// Attr returns the attributes that the AH was created with.
func (ah *AH) Attr() AHAttr { return ah.attr }

func (ah *AH) obj() string {
	if ah.attr.IsGlobal {
		return "AH to " + ah.attr.GRH.DGID.String()
	}
	return fmt.Sprintf("AH to LID %d", ah.attr.DLID)
}

// Close destroys the AH (ibv_destroy_ah). Sends that use it must have completed before. EINVAL if it is closed.
func (ah *AH) Close() error {
	if err := ah.lifetime.close("destroy_ah", ah); err != nil {
		return err
	}
	if err := destroyed(ah.drv.Destroy()); err != nil {
		ah.lifetime.reopen()
		return driverError("destroy_ah", ah.obj(), err)
	}
	ah.pd.lifetime.drop(kindAH)
	return ah.pd.ctx.ended("destroy_ah", ah)
}

// InitAHFromWC returns the attributes of an AH to the sender of a received UD message (ibv_init_ah_from_wc). wc is
// the completion of the receive. grh is the first 40 bytes of the receive buffer; it is read only if wc.WCFlags has
// WCGRH.
//
// Errors: EINVAL for another port number, if wc is not successful, if grh is shorter than 40 bytes or no
// network header, if the destination of the message is a multicast group, or if it is not in the port's GID table.
func (vctx *Context) InitAHFromWC(port uint8, wc *WC, grh []byte) (AHAttr, error) {
	const op = "init_ah_from_wc"
	if err := vctx.enter(op); err != nil {
		return AHAttr{}, err
	}
	defer vctx.leave()
	return vctx.initAHFromWC(op, port, wc, grh)
}

func (vctx *Context) initAHFromWC(op string, port uint8, wc *WC, grh []byte) (AHAttr, error) {
	if err := vctx.checkPort(op, port); err != nil {
		return AHAttr{}, err
	}
	if wc == nil || wc.Status != WCSuccess {
		return AHAttr{}, newError(op, vctx.obj(), EINVAL, "the completion is not a successful receive")
	}
	attr := AHAttr{DLID: wc.SLID, SL: wc.SL, SrcPathBits: wc.DLIDPathBits, PortNum: port}
	if wc.WCFlags&WCGRH == 0 {
		return attr, nil
	}
	h, err := parseGRH(grh)
	if err != nil {
		return AHAttr{}, badInput(op, vctx.obj(), err)
	}
	if h.dgid.IsMulticast() {
		return AHAttr{}, newError(op, vctx.obj(), EINVAL,
			"the destination %v is a multicast group; make an AHAttr of the sender's GID %v", h.dgid, h.sgid)
	}
	table, err := vctx.gidTable(op, port)
	if err != nil {
		return AHAttr{}, err
	}
	for i, e := range table {
		if e.GID == h.dgid && !e.GID.IsZero() {
			attr.IsGlobal = true
			attr.GRH = GlobalRoute{DGID: h.sgid, FlowLabel: h.flowLabel, SGIDIndex: i, HopLimit: h.hopLimit,
				TrafficClass: h.trafficClass}
			return attr, nil
		}
	}
	return AHAttr{}, newError(op, vctx.obj(), EINVAL, "the destination %v is not in the GID table of port %d", h.dgid,
		port)
}

// CreateAHFromWC calls InitAHFromWC and CreateAH (ibv_create_ah_from_wc). The errors are those of both.
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

// parseGRH parses the network header in front of a received UD message: a GRH, which has the form of an IPv6 header,
// or, on RoCEv2 over IPv4, an IPv4 header in the last 20 bytes.
func parseGRH(b []byte) (h grhFields, err error) {
	if len(b) < grhSize {
		return h, fmt.Errorf("%d bytes of GRH: must be 40 or more", len(b))
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

// isIPv4 reports whether h is an IPv4 header without options.
func isIPv4(h []byte) bool { return h[0] == 0x45 }

// ipv4Sum returns the ones' complement sum of an IPv4 header: 0xffff if its checksum is right. The check keeps an
// IPv6 address that looks like an IPv4 header from being parsed as one.
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

// FlowLabelToUDPSourcePort returns the UDP source port, 0xC000 to 0xFFFF, of packets with a flow label
// (ibv_flow_label_to_udp_sport). Only the lower 20 bits of label are used. The software device sends from this port,
// so that the network can spread connections over links and captures can be filtered by port. With label 0 devices
// choose a port themselves.
func FlowLabelToUDPSourcePort(label uint32) uint16 {
	return 0xC000 | uint16(label&0x3FFF^label>>14&0x3F)
}

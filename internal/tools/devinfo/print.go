package devinfo

import (
	"fmt"
	"io"
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
)

// A device has everything that ibv_devinfo prints about one.
type device struct {
	name        string
	transport   verbs.TransportType
	attr        verbs.DeviceAttr
	compVectors int
	ports       []port
}

type port struct {
	num  uint8
	attr verbs.PortAttr
	gids []verbs.GIDEntry
}

// print writes d in the columns of the C tool.
func (d *device) print(w io.Writer, verbose bool) {
	p := printer{w}
	p.field(1, "hca_id", "%s", d.name)
	p.field(5, "\ttransport", "%s (%d)", d.transport, d.transport)
	if d.attr.FWVer != "" {
		p.field(5, "\tfw_ver", "%s", d.attr.FWVer)
	}
	p.field(5, "\tnode_guid", "%s", d.attr.NodeGUID)
	p.field(5, "\tsys_image_guid", "%s", d.attr.SysImageGUID)
	p.field(5, "\tvendor_id", "0x%04x", d.attr.VendorID)
	p.field(5, "\tvendor_part_id", "%d", d.attr.VendorPartID)
	p.field(5, "\thw_ver", "0x%X", d.attr.HWVer)
	p.field(5, "\tphys_port_cnt", "%d", d.attr.PhysPortCnt)
	if verbose {
		d.printAttr(p)
		p.printExtended(&d.attr)
		p.field(5, "\tnum_comp_vectors", "%d", d.compVectors)
	}
	for i := range d.ports {
		d.ports[i].print(p, d.transport, verbose)
		p.line("")
	}
}

func (d *device) printAttr(p printer) {
	a := &d.attr
	p.field(5, "\tmax_mr_size", "0x%x", a.MaxMRSize)
	p.field(5, "\tpage_size_cap", "0x%x", a.PageSizeCap)
	p.field(5, "\tmax_qp", "%d", a.MaxQP)
	p.field(5, "\tmax_qp_wr", "%d", a.MaxQPWR)
	p.field(5, "\tdevice_cap_flags", "0x%08x", uint32(a.DeviceCapFlags))
	p.flags(a.DeviceCapFlags & 0xffffffff)
	p.field(5, "\tmax_sge", "%d", a.MaxSGE)
	p.field(5, "\tmax_sge_rd", "%d", a.MaxSGERd)
	p.field(5, "\tmax_cq", "%d", a.MaxCQ)
	p.field(5, "\tmax_cqe", "%d", a.MaxCQE)
	p.field(5, "\tmax_mr", "%d", a.MaxMR)
	p.field(5, "\tmax_pd", "%d", a.MaxPD)
	p.field(5, "\tmax_qp_rd_atom", "%d", a.MaxQPRdAtom)
	p.field(5, "\tmax_ee_rd_atom", "%d", a.MaxEERdAtom)
	p.field(5, "\tmax_res_rd_atom", "%d", a.MaxResRdAtom)
	p.field(5, "\tmax_qp_init_rd_atom", "%d", a.MaxQPInitRdAtom)
	p.field(5, "\tmax_ee_init_rd_atom", "%d", a.MaxEEInitRdAtom)
	p.field(5, "\tatomic_cap", "%s (%d)", a.AtomicCap, uint32(a.AtomicCap))
	p.field(5, "\tmax_ee", "%d", a.MaxEE)
	p.field(5, "\tmax_rdd", "%d", a.MaxRDD)
	p.field(5, "\tmax_mw", "%d", a.MaxMW)
	p.field(5, "\tmax_raw_ipv6_qp", "%d", a.MaxRawIPv6QP)
	p.field(5, "\tmax_raw_ethy_qp", "%d", a.MaxRawEthyQP)
	p.field(5, "\tmax_mcast_grp", "%d", a.MaxMcastGrp)
	p.field(5, "\tmax_mcast_qp_attach", "%d", a.MaxMcastQPAttach)
	p.field(5, "\tmax_total_mcast_qp_attach", "%d", a.MaxTotalMcastQPAttach)
	p.field(5, "\tmax_ah", "%d", a.MaxAH)
	p.field(5, "\tmax_fmr", "%d", a.MaxFMR)
	if a.MaxFMR != 0 {
		p.field(5, "\tmax_map_per_fmr", "%d", a.MaxMapPerFMR)
	}
	p.field(5, "\tmax_srq", "%d", a.MaxSRQ)
	if a.MaxSRQ != 0 {
		p.field(5, "\tmax_srq_wr", "%d", a.MaxSRQWR)
		p.field(5, "\tmax_srq_sge", "%d", a.MaxSRQSGE)
	}
	p.field(5, "\tmax_pkeys", "%d", a.MaxPKeys)
	p.field(5, "\tlocal_ca_ack_delay", "%d", a.LocalCAAckDelay)
}

func (t *port) print(p printer, transport verbs.TransportType, verbose bool) {
	a := &t.attr
	p.line("\t\tport:\t%d", t.num)
	p.field(6, "\t\t\tstate", "%s (%d)", portState(a.State), uint32(a.State))
	p.field(6, "\t\t\tmax_mtu", "%s (%d)", mtu(a.MaxMTU), uint32(a.MaxMTU))
	p.field(6, "\t\t\tactive_mtu", "%s (%d)", mtu(a.ActiveMTU), uint32(a.ActiveMTU))
	p.field(6, "\t\t\tsm_lid", "%d", a.SMLID)
	p.field(6, "\t\t\tport_lid", "%d", a.LID)
	p.field(6, "\t\t\tport_lmc", "0x%02x", a.LMC)
	p.field(6, "\t\t\tlink_layer", "%s", linkLayer(a.LinkLayer))
	if !verbose {
		return
	}
	p.field(6, "\t\t\tmax_msg_sz", "0x%x", a.MaxMsgSz)
	p.field(6, "\t\t\tport_cap_flags", "0x%08x", uint32(a.PortCapFlags))
	p.field(6, "\t\t\tport_cap_flags2", "0x%04x", uint16(a.PortCapFlags2))
	p.field(6, "\t\t\tmax_vl_num", "%s (%d)", virtualLanes(a.MaxVLNum), a.MaxVLNum)
	p.field(6, "\t\t\tbad_pkey_cntr", "0x%x", a.BadPKeyCntr)
	p.field(6, "\t\t\tqkey_viol_cntr", "0x%x", a.QKeyViolCntr)
	p.field(6, "\t\t\tsm_sl", "%d", a.SMSL)
	p.field(6, "\t\t\tpkey_tbl_len", "%d", a.PKeyTblLen)
	p.field(6, "\t\t\tgid_tbl_len", "%d", a.GIDTblLen)
	p.field(6, "\t\t\tsubnet_timeout", "%d", a.SubnetTimeout)
	p.field(6, "\t\t\tinit_type_reply", "%d", a.InitTypeReply)
	p.field(6, "\t\t\tactive_width", "%sX (%d)", a.ActiveWidth, uint8(a.ActiveWidth))
	p.field(6, "\t\t\tactive_speed", "%s (%d)", a.ActiveSpeed, uint16(a.ActiveSpeed))
	if transport == verbs.TransportIB {
		p.field(6, "\t\t\tphys_state", "%s (%d)", physState(a.PhysState), uint8(a.PhysState))
	}
	for _, g := range t.gids {
		if g.GID.InterfaceID() != 0 {
			p.gid(g, a.LinkLayer)
		}
	}
}

// A printer writes lines whose columns are separated by tabs.
type printer struct{ io.Writer }

func (p printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// field writes a name and a value. The value begins at the given tab stop, or one tab after a longer name.
func (p printer) field(stop int, name, format string, args ...any) {
	fmt.Fprintf(p, name+":"+strings.Repeat("\t", max(1, stop-len(expand(name+":"))/8))+format+"\n", args...)
}

// expand replaces the tabs of s by spaces, with a tab stop at every eighth column.
func expand(s string) string {
	var b strings.Builder
	for _, c := range s {
		if c != '\t' {
			b.WriteRune(c)
			continue
		}
		b.WriteString(strings.Repeat(" ", 8-b.Len()%8))
	}
	return b.String()
}

// flags writes one line for each flag.
func (p printer) flags(f verbs.DeviceCapFlags) {
	if f == 0 {
		return
	}
	for name := range strings.SplitSeq(f.String(), "|") {
		if strings.HasPrefix(name, "0x") {
			name = "Unknown flags: 0x" + strings.ToUpper(name[2:])
		}
		p.line("\t\t\t\t\t%s", name)
	}
}

func (p printer) gid(g verbs.GIDEntry, layer verbs.LinkLayer) {
	text, suffix := g.GID.String(), ""
	if g.Type != verbs.GIDTypeRoCEv2 {
		text = g.GID.Hex()
	}
	if layer == verbs.LinkLayerEthernet {
		suffix = ", " + g.Type.String()
	}
	fmt.Fprintf(p, "\t\t\tGID[%3d]:\t\t%s%s\n", g.Index, text, suffix)
}

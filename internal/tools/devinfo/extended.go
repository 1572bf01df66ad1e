package devinfo

import "github.com/verbena-rdma/verbena/verbs"

// printExtended writes the attributes of the extended query (struct ibv_device_attr_ex).
func (p printer) printExtended(a *verbs.DeviceAttr) {
	p.odp(a)
	if a.CompletionTimestampMask != 0 {
		p.line("\tcompletion timestamp_mask:\t\t\t0x%016x", a.CompletionTimestampMask)
	} else {
		p.line("\tcompletion_timestamp_mask not supported")
	}
	if a.HCACoreClock != 0 {
		p.line("\thca_core_clock:\t\t\t%dkHZ", a.HCACoreClock)
	} else {
		p.line("\tcore clock not supported")
	}
	p.rawPacket(a.RawPacketCaps)
	p.field(5, "\tdevice_cap_flags_ex", "0x%X", uint64(a.DeviceCapFlags))
	p.flagsEx(a.DeviceCapFlags &^ 0xffffffff)
	p.line("\ttso_caps:")
	p.line("\t\tmax_tso:\t\t\t%d", a.TSOCaps.MaxTSO)
	p.supportedQPs(a.TSOCaps.SupportedQPTs)
	p.line("\trss_caps:")
	p.line("\t\tmax_rwq_indirection_tables:\t\t\t%d", a.RSSCaps.MaxRWQIndirectionTables)
	p.line("\t\tmax_rwq_indirection_table_size:\t\t\t%d", a.RSSCaps.MaxRWQIndirectionTableSize)
	p.line("\t\trx_hash_function:\t\t\t\t0x%x", a.RSSCaps.RxHashFunction)
	p.line("\t\trx_hash_fields_mask:\t\t\t\t0x%X", a.RSSCaps.RxHashFieldsMask)
	p.supportedQPs(a.RSSCaps.SupportedQPTs)
	p.line("\tmax_wq_type_rq:\t\t\t%d", a.MaxWQTypeRQ)
	p.line("\tpacket_pacing_caps:")
	p.line("\t\tqp_rate_limit_min:\t%dkbps", a.PacketPacingCaps.QPRateLimitMin)
	p.line("\t\tqp_rate_limit_max:\t%dkbps", a.PacketPacingCaps.QPRateLimitMax)
	p.supportedQPs(a.PacketPacingCaps.SupportedQPTs)
	p.tagMatching(&a.TMCaps)
	if m := a.CQModCaps; m.MaxCQCount != 0 && m.MaxCQPeriod != 0 {
		p.line("\n\tcq moderation caps:\n\t\tmax_cq_count:\t%d\n\t\tmax_cq_period:\t%d us\n", m.MaxCQCount, m.MaxCQPeriod)
	}
	if a.MaxDMSize != 0 {
		p.line("\tmaximum available device memory:\t%dBytes\n", a.MaxDMSize)
	}
}

// odp writes the operations that are supported on regions with on-demand paging.
func (p printer) odp(a *verbs.DeviceAttr) {
	p.line("\tgeneral_odp_caps:")
	p.bits(uint64(a.ODPCaps.General), "ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT")
	for _, t := range []struct {
		name string
		caps verbs.ODPTransportCaps
	}{{"rc", a.ODPCaps.RC}, {"uc", a.ODPCaps.UC}, {"ud", a.ODPCaps.UD}, {"xrc", a.XRCODPCaps}} {
		p.line("\t%s_odp_caps:", t.name)
		if t.caps == 0 {
			p.line("\t\t\t\t\tNO SUPPORT")
		}
		p.bits(uint64(t.caps), "SUPPORT_SEND", "SUPPORT_RECV", "SUPPORT_WRITE", "SUPPORT_READ", "SUPPORT_ATOMIC",
			"SUPPORT_SRQ")
		// ibv_devinfo of release 44 does not know FLUSH and ATOMIC WRITE.
		if unknown := t.caps &^ (verbs.ODPFlush - 1); unknown != 0 {
			p.line("\t\t\t\t\tUnknown flags: 0x%X", uint32(unknown))
		}
	}
}

// bits writes the names of the set bits.
func (p printer) bits(set uint64, names ...string) {
	for i, name := range names {
		if set>>i&1 != 0 {
			p.line("\t\t\t\t\t%s", name)
		}
	}
}

func (p printer) tagMatching(c *verbs.TMCaps) {
	if c.MaxNumTags == 0 {
		p.line("\ttag matching not supported")
		return
	}
	p.line("\tmax_rndv_hdr_size:\t\t%d", c.MaxRndvHdrSize)
	p.line("\tmax_num_tags:\t\t\t%d", c.MaxNumTags)
	p.line("\tmax_ops:\t\t\t%d", c.MaxOps)
	p.line("\tmax_sge:\t\t\t%d", c.MaxSGE)
	p.line("\tflags:")
	p.bits(uint64(c.Flags), "IBV_TM_CAP_RC")
}

// rawPacket writes the offloads of raw packet QPs, if there are any.
func (p printer) rawPacket(c verbs.RawPacketCaps) {
	if c == 0 {
		return
	}
	p.line("\traw packet caps:")
	for i, name := range []string{"C-VLAN stripping offload", "Scatter FCS offload", "IP csum offload", "Delay drop"} {
		if c>>i&1 != 0 {
			p.line("\t\t\t\t\t%s", name)
		}
	}
}

// flagsEx writes the flags above the first 32. ibv_devinfo of release 44 knows two of them by name.
func (p printer) flagsEx(f verbs.DeviceCapFlags) {
	const named = verbs.DeviceRawScatterFCS | verbs.DevicePCIWriteEndPadding
	p.flags(f & named)
	if f&^named != 0 {
		p.line("\t\t\t\t\tUnknown flags: 0x%X", uint64(f&^named))
	}
}

// supportedQPs writes the QP types of an offload, if there are any. ibv_devinfo of release 44 knows two of them by
// name.
func (p printer) supportedQPs(types uint32) {
	if types == 0 {
		return
	}
	p.line("\t\tsupported_qp:")
	unknown := types
	for _, t := range []verbs.QPType{verbs.QPTypeRawPacket, verbs.QPTypeUD} {
		if verbs.IsQPTSupported(types, t) {
			p.line("\t\t\t\t\tSUPPORT_%v", t)
		}
		unknown &^= 1 << t
	}
	if unknown != 0 {
		p.line("\t\t\t\t\tUnknown flags: 0x%X", unknown)
	}
}

//go:build linux && (amd64 || arm64)

package hw

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// member is a member of a structure of C and where Go expects it. Without a name it is the size of the structure.
type member struct {
	of, name string
	want     uintptr
	negative bool // the distance from the member to the member context of struct verbs_context
}

// structures pairs the structures of Go with those of C. Fields are matched in order; the names of C are given.
var structures = []struct {
	c       string
	v       any
	members string
	open    bool // releases after 44 may have more members
}{
	{c: "ibv_sge", v: cSGE{}, members: "addr length lkey"},
	{c: "ibv_send_wr", v: cSendWR{}, members: "wr_id next sg_list num_sge opcode send_flags imm_data wr " +
		"qp_type.xrc.remote_srqn - " +
		"bind_mw.mw bind_mw.rkey - bind_mw.bind_info"},
	{c: "ibv_mw_bind_info", v: cBindInfo{}, members: "mr addr length mw_access_flags -"},
	{c: "ibv_mw_bind", v: cMWBind{}, members: "wr_id send_flags - bind_info"},
	{c: "ibv_recv_wr", v: cRecvWR{}, members: "wr_id next sg_list num_sge -"},
	{c: "ibv_wc", v: cWC{}, members: "wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags " +
		"pkey_index slid sl " +
		"dlid_path_bits"},
	{c: "ibv_global_route", v: cGlobalRoute{}, members: "dgid flow_label sgid_index hop_limit traffic_class"},
	{c: "ibv_ah_attr", v: cAHAttr{}, members: "grh dlid sl src_path_bits static_rate is_global port_num"},
	{c: "ibv_qp_cap", v: cQPCap{}, members: "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data"},
	{c: "ibv_qp_init_attr_ex", v: cQPInitAttr{}, members: "qp_context send_cq recv_cq srq cap qp_type sq_sig_all " +
		"comp_mask pd xrcd " +
		"create_flags max_tso_header rwq_ind_tbl rx_hash_conf source_qpn send_ops_flags"},
	{c: "ibv_rx_hash_conf", v: cRxHash{}, members: "rx_hash_function rx_hash_key_len rx_hash_key rx_hash_fields_mask"},
	{c: "ibv_alloc_dm_attr", v: cAllocDM{}, members: "length log_align_req comp_mask"},
	{c: "ibv_counter_attach_attr", v: cCounterAttach{}, members: "counter_desc index comp_mask"},
	{c: "ibv_wq_init_attr", v: cWQInitAttr{}, members: "wq_context wq_type max_wr max_sge pd cq comp_mask create_flags"},
	{c: "ibv_wq_attr", v: cWQAttr{}, members: "attr_mask wq_state curr_wq_state flags flags_mask"},
	{c: "ibv_rwq_ind_table_init_attr", v: cIndTableInit{}, members: "log_ind_tbl_size ind_tbl comp_mask"},
	{c: "ibv_ops_wr", v: cOpsWR{}, members: "wr_id next opcode flags tm.unexpected_cnt tm.handle tm.add.recv_wr_id " +
		"tm.add.sg_list tm.add.num_sge tm.add.tag tm.add.mask"},
	{c: "ibv_wc_tm_info", v: cTMInfo{}, members: "tag priv"},
	{c: "ibv_qp_attr", v: cQPAttr{}, members: "qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn " +
		"dest_qp_num " +
		"qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic " +
		"max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit -"},
	{c: "ibv_srq_attr", v: cSRQAttr{}, members: "max_wr max_sge srq_limit"},
	{c: "ibv_srq_init_attr_ex", v: cSRQInitAttr{}, members: "srq_context attr comp_mask srq_type pd xrcd cq tm_cap"},
	{c: "ibv_device_attr", v: cDeviceAttr{}, members: "fw_ver node_guid sys_image_guid max_mr_size page_size_cap " +
		"vendor_id " +
		"vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd " +
		"max_qp_rd_atom " +
		"max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw " +
		"max_raw_ipv6_qp " +
		"max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr " +
		"max_srq " +
		"max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt"},
	{c: "ibv_device_attr_ex", v: cDeviceAttrEx{}, members: "orig_attr comp_mask odp_caps.general_caps " +
		"odp_caps.per_transport_caps.rc_odp_caps odp_caps.per_transport_caps.uc_odp_caps " +
		"odp_caps.per_transport_caps.ud_odp_caps " +
		"completion_timestamp_mask hca_core_clock device_cap_flags_ex tso_caps.max_tso tso_caps.supported_qpts " +
		"rss_caps.supported_qpts rss_caps.max_rwq_indirection_tables rss_caps.max_rwq_indirection_table_size " +
		"rss_caps.rx_hash_fields_mask rss_caps.rx_hash_function - max_wq_type_rq packet_pacing_caps.qp_rate_limit_min " +
		"packet_pacing_caps.qp_rate_limit_max packet_pacing_caps.supported_qpts raw_packet_caps tm_caps.max_rndv_hdr_size " +
		"tm_caps.max_num_tags tm_caps.flags tm_caps.max_ops tm_caps.max_sge cq_mod_caps.max_cq_count " +
		"cq_mod_caps.max_cq_period " +
		"max_dm_size pci_atomic_caps.fetch_add pci_atomic_caps.swap pci_atomic_caps.compare_swap xrc_odp_caps " +
		"phys_port_cnt_ex"},
	{c: "ibv_port_attr", v: cPortAttr{}, open: true, members: "state max_mtu active_mtu gid_tbl_len port_cap_flags " +
		"max_msg_sz bad_pkey_cntr " +
		"qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width " +
		"active_speed " +
		"phys_state link_layer flags port_cap_flags2"},
	{c: "ibv_gid_entry", v: cGIDEntry{}, members: "gid gid_index port_num gid_type ndev_ifindex"},
	{c: "ibv_async_event", v: cAsyncEvent{}, members: "element event_type"},
	{c: "ibv_ece", v: cECE{}, members: "vendor_id options comp_mask"},
	{c: "ibv_cq_init_attr_ex", v: cCQInitAttr{}, members: "cqe cq_context channel comp_vector wc_flags comp_mask " +
		"flags parent_domain"},
	{c: "ibv_modify_cq_attr", v: cModifyCQ{}, members: "attr_mask moderate.cq_count moderate.cq_period"},
	{c: "ibv_xrcd_init_attr", v: cXRCDInit{}, members: "comp_mask fd oflags"},
	{c: "ibv_qp_open_attr", v: cQPOpen{}, members: "comp_mask qp_num xrcd qp_context qp_type"},
	{c: "ibv_qp_rate_limit_attr", v: cRateLimit{}, members: "rate_limit max_burst_sz typical_pkt_sz comp_mask"},
	{c: "ibv_values_ex", v: cValues{}, members: "comp_mask raw_clock.tv_sec raw_clock.tv_nsec"},
}

// offsets are those of structures that Go does not declare.
var offsets = []member{
	{of: "ibv_device", name: "node_type", want: offDeviceNodeType},
	{of: "ibv_device", name: "transport_type", want: offDeviceTransport},
	{of: "ibv_device", name: "name", want: offDeviceName}, {of: "ibv_device", name: "dev_name", want: offDeviceFile},
	{of: "ibv_context", name: "ops", want: offContextOps}, {of: "ibv_context", name: "async_fd", want: offContextAsyncFD},
	{of: "ibv_context", name: "num_comp_vectors", want: offContextVectors},
	{of: "ibv_context", name: "abi_compat", want: offContextCompat}, {of: "ibv_context", want: 328 + mutexMore},
	{of: "ibv_comp_channel", name: "fd", want: offChannelFD},
	{of: "ibv_mr", name: "lkey", want: offMRLKey}, {of: "ibv_mr", name: "rkey", want: offMRRKey},
	{of: "ibv_mw", name: "rkey", want: offMWRKey}, {of: "ibv_cq", name: "cqe", want: offCQSize},
	{of: "ibv_cq_ex", name: "status", want: offCQExStatus}, {of: "ibv_cq_ex", name: "wr_id", want: offCQExWRID},
	{of: "ibv_qp", name: "qp_num", want: offQPNum},
	{of: "ibv_dm", name: "memcpy_to_dm", want: offDMCopyTo}, {of: "ibv_dm", name: "memcpy_from_dm", want: offDMCopyFrom},
	{of: "ibv_wq", name: "wq_num", want: offWQNum}, {of: "ibv_wq", name: "post_recv", want: offWQPostRecv},
	{of: "ibv_wq", name: "mutex", want: offWQMutex}, {of: "ibv_wq", name: "cond", want: offWQCond},
	{of: "ibv_rwq_ind_table", name: "ind_tbl_num", want: offIndTableNum},
	{of: "ibv_qp_ex", name: "wr_id", want: offQPExWRID}, {of: "ibv_qp_ex", name: "wr_flags", want: offQPExFlags},

	{of: "ibv_context_ops", name: "alloc_mw", want: opAllocMW}, {of: "ibv_context_ops", name: "bind_mw", want: opBindMW},
	{of: "ibv_context_ops", name: "dealloc_mw", want: opDeallocMW}, {of: "ibv_context_ops", name: "poll_cq",
		want: opPollCQ},
	{of: "ibv_context_ops", name: "req_notify_cq", want: opReqNotifyCQ},
	{of: "ibv_context_ops", name: "post_srq_recv", want: opPostSRQRecv},
	{of: "ibv_context_ops", name: "post_send", want: opPostSend}, {of: "ibv_context_ops", name: "post_recv",
		want: opPostRecv},

	{name: "sz", want: extSize, negative: true}, {name: "close_xrcd", want: extCloseXRCD, negative: true},
	{name: "open_xrcd", want: extOpenXRCD, negative: true}, {name: "create_srq_ex", want: extCreateSRQ, negative: true},
	{name: "get_srq_num", want: extGetSRQNum, negative: true}, {name: "create_qp_ex", want: extCreateQP, negative: true},
	{name: "open_qp", want: extOpenQP, negative: true}, {name: "query_device_ex", want: extQueryDevice, negative: true},
	{name: "create_cq_ex", want: extCreateCQ, negative: true}, {name: "query_rt_values", want: extQueryRTValues,
		negative: true},
	{name: "modify_cq", want: extModifyCQ, negative: true}, {name: "modify_qp_rate_limit", want: extRateLimit,
		negative: true},
	{name: "ibv_create_flow", want: extCreateFlow, negative: true},
	{name: "ibv_destroy_flow", want: extDestroyFlow, negative: true},
	{name: "create_wq", want: extCreateWQ, negative: true}, {name: "modify_wq", want: extModifyWQ, negative: true},
	{name: "destroy_wq", want: extDestroyWQ, negative: true},
	{name: "create_rwq_ind_table", want: extCreateIndTable, negative: true},
	{name: "destroy_rwq_ind_table", want: extDestroyIndTable, negative: true},
	{name: "post_srq_ops", want: extPostSRQOps, negative: true}, {name: "free_dm", want: extFreeDM, negative: true},
	{name: "alloc_dm", want: extAllocDM, negative: true}, {name: "reg_dm_mr", want: extRegDMMR, negative: true},
	{name: "destroy_counters", want: extDestroyCounters, negative: true},
	{name: "create_counters", want: extCreateCounters, negative: true},
	{name: "attach_counters_point_flow", want: extAttachCounters, negative: true},
	{name: "read_counters", want: extReadCounters, negative: true},
	{name: "alloc_null_mr", want: extAllocNullMR, negative: true}, {name: "advise_mr", want: extAdviseMR, negative: true},
	{name: "query_port", want: extQueryPort, negative: true},

	{of: "ibv_cq_ex", name: "start_poll", want: cqStartPoll}, {of: "ibv_cq_ex", name: "next_poll", want: cqStartPoll + 8},
	{of: "ibv_cq_ex", name: "end_poll", want: cqEndPoll}, {of: "ibv_cq_ex", name: "read_opcode", want: cqReadOpcode},
	{of: "ibv_cq_ex", name: "read_vendor_err", want: cqReadVendorErr}, {of: "ibv_cq_ex", name: "read_byte_len",
		want: cqReadByteLen},
	{of: "ibv_cq_ex", name: "read_imm_data", want: cqReadImm}, {of: "ibv_cq_ex", name: "read_qp_num", want: cqReadQPNum},
	{of: "ibv_cq_ex", name: "read_src_qp", want: cqReadSrcQP}, {of: "ibv_cq_ex", name: "read_wc_flags", want: cqReadFlags},
	{of: "ibv_cq_ex", name: "read_slid", want: cqReadSLID}, {of: "ibv_cq_ex", name: "read_sl", want: cqReadSL},
	{of: "ibv_cq_ex", name: "read_dlid_path_bits", want: cqReadPathBits},
	{of: "ibv_cq_ex", name: "read_completion_ts", want: cqReadTimestamp}, {of: "ibv_cq_ex", name: "read_cvlan",
		want: cqReadCVLAN},
	{of: "ibv_cq_ex", name: "read_tm_info", want: cqReadTMInfo},
	{of: "ibv_cq_ex", name: "read_flow_tag", want: cqReadFlowTag},
	{of: "ibv_cq_ex", name: "read_completion_wallclock_ns", want: cqReadWallclock},

	{of: "ibv_qp_ex", name: "wr_atomic_cmp_swp", want: wrCmpSwap}, {of: "ibv_qp_ex", name: "wr_atomic_fetch_add",
		want: wrFetchAdd},
	{of: "ibv_qp_ex", name: "wr_bind_mw", want: wrBindMW}, {of: "ibv_qp_ex", name: "wr_local_inv", want: wrLocalInv},
	{of: "ibv_qp_ex", name: "wr_rdma_read", want: wrRead}, {of: "ibv_qp_ex", name: "wr_rdma_write", want: wrWrite},
	{of: "ibv_qp_ex", name: "wr_rdma_write_imm", want: wrWriteImm}, {of: "ibv_qp_ex", name: "wr_send", want: wrSend},
	{of: "ibv_qp_ex", name: "wr_send_imm", want: wrSendImm}, {of: "ibv_qp_ex", name: "wr_send_inv", want: wrSendInv},
	{of: "ibv_qp_ex", name: "wr_send_tso", want: wrSendTSO}, {of: "ibv_qp_ex", name: "wr_set_ud_addr", want: wrSetUDAddr},
	{of: "ibv_qp_ex", name: "wr_set_xrc_srqn", want: wrSetSRQN}, {of: "ibv_qp_ex", name: "wr_set_inline_data",
		want: wrSetInline},
	{of: "ibv_qp_ex", name: "wr_set_sge_list", want: wrSetSGEList}, {of: "ibv_qp_ex", name: "wr_start", want: wrStart},
	{of: "ibv_qp_ex", name: "wr_complete", want: wrComplete}, {of: "ibv_qp_ex", name: "wr_abort", want: wrAbort},
	{of: "ibv_qp_ex", name: "wr_atomic_write", want: wrAtomicWrite},
}

// members lists what Go expects.
func members(t *testing.T) []member {
	list := append([]member(nil), offsets...)
	for _, s := range structures {
		typ := reflect.TypeOf(s.v)
		names := strings.Fields(s.members)
		if typ.NumField() != len(names)+1 { // the first is structs.HostLayout
			t.Fatalf("%s has %d fields and %d names", s.c, typ.NumField()-1, len(names))
		}
		for i, n := range names {
			if n != "-" {
				list = append(list, member{of: s.c, name: n, want: typ.Field(i + 1).Offset})
			}
		}
		if !s.open {
			list = append(list, member{of: s.c, want: typ.Size()})
		}
	}
	return list
}

// TestLayouts compares the structures and offsets with the headers of this module and, if they are installed, with
// those of the system.
func TestLayouts(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	own, err := filepath.Abs("../../cabi/abi")
	if err != nil {
		t.Fatal(err)
	}
	list := members(t)
	check(t, list, "verbena_verbs.h", "-I"+own)
	const installed = "/usr/include/infiniband/verbs.h"
	if _, err := os.Stat(installed); err != nil {
		t.Log("the headers of rdma-core are not installed")
		return
	}
	check(t, list, installed)
}

func check(t *testing.T, list []member, header string, flags ...string) {
	var src strings.Builder
	fmt.Fprintf(&src, "#include <stddef.h>\n#include <stdio.h>\n#include \"%s\"\nint main(void) {\n", header)
	for _, m := range list {
		switch {
		case m.negative:
			fmt.Fprintf(&src, "printf(\"%%zu\\n\", offsetof(struct verbs_context, context) - offsetof(struct "+
				"verbs_context, %s));\n",
				m.name)
		case m.name == "":
			fmt.Fprintf(&src, "printf(\"%%zu\\n\", sizeof(struct %s));\n", m.of)
		default:
			fmt.Fprintf(&src, "printf(\"%%zu\\n\", offsetof(struct %s, %s));\n", m.of, m.name)
		}
	}
	src.WriteString("}\n")
	exe := filepath.Join(t.TempDir(), "layouts")
	cmd := exec.Command("gcc", append(flags, "-D_GNU_SOURCE", "-x", "c", "-o", exe, "-")...)
	cmd.Stdin = strings.NewReader(src.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", header, err, out)
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(list) {
		t.Fatalf("%s: %d of %d numbers", header, len(lines), len(list))
	}
	for i, m := range list {
		if got, _ := strconv.Atoi(lines[i]); uintptr(got) != m.want {
			t.Errorf("%s: struct %s, %s: %d, Go has %d", header, m.of, m.name, got, m.want)
		}
	}
}

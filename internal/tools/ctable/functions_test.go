package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// manual lists the functions that the manual of libibverbs names, without ibv_.
const manual = `
fork_init get_device_list free_device_list get_device_name get_device_guid open_device close_device query_device
query_device_ex query_port query_gid query_pkey get_pkey_index get_async_event ack_async_event create_comp_channel
destroy_comp_channel create_cq create_cq_ex cq_ex_to_cq resize_cq modify_cq destroy_cq start_poll next_poll end_poll
wc_read_opcode wc_read_vendor_err wc_read_byte_len wc_read_imm_data wc_read_invalidated_rkey wc_read_qp_num
wc_read_src_qp wc_read_wc_flags wc_read_pkey_index wc_read_slid wc_read_sl wc_read_dlid_path_bits wc_read_completion_ts
wc_read_completion_wallclock_ns wc_read_cvlan wc_read_flow_tag wc_read_tm_info alloc_pd dealloc_pd alloc_dm free_dm
alloc_td dealloc_td open_xrcd close_xrcd create_counters destroy_counters create_wq destroy_wq create_rwq_ind_table
destroy_rwq_ind_table create_srq create_srq_ex modify_srq query_srq destroy_srq create_qp create_qp_ex qp_to_qp_ex
query_qp modify_qp open_qp destroy_qp reg_mr rereg_mr dereg_mr create_ah init_ah_from_wc create_ah_from_wc destroy_ah
alloc_mw bind_mw dealloc_mw attach_mcast detach_mcast create_flow destroy_flow post_recv post_send post_srq_recv
get_cq_event ack_cq_events req_notify_cq poll_cq wr_start wr_complete wr_abort wr_atomic_cmp_swp wr_atomic_fetch_add
wr_bind_mw wr_local_inv wr_rdma_read wr_rdma_write wr_rdma_write_imm wr_send wr_send_imm wr_send_inv wr_send_tso
wr_set_inline_data wr_set_inline_data_list wr_set_sge wr_set_sge_list wr_set_ud_addr wr_set_xrc_srqn memcpy_from_dm
memcpy_to_dm reg_dm_mr node_type_str port_state_str wc_status_str event_type_str modify_wq alloc_null_mr advise_mr
alloc_parent_domain read_counters create_flow_action_*
`

// Each function of the manual has a Go form.
func TestEveryFunctionOfTheManual(t *testing.T) {
	rows, err := collect(filepath.Join("..", "..", "..", "verbs"), "verbs")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(manual)
	if len(names) != 123 {
		t.Errorf("the manual has 123 functions, the list %d", len(names))
	}
	for _, name := range names {
		prefix, family := strings.CutSuffix("ibv_"+name, "*")
		found := false
		for _, r := range rows {
			found = found || r.c == prefix || family && strings.HasPrefix(r.c, prefix)
		}
		if !found {
			t.Errorf("no docstring of package verbs names ibv_%s", name)
		}
	}
}

// The functions that programs call through a context.
#include "lib.h"

void vb_fill_ops(struct verbs_context *v)
{
	struct ibv_context_ops *ops = &v->context.ops;

	ops->alloc_mw = vb_alloc_mw;
	ops->bind_mw = vb_bind_mw;
	ops->dealloc_mw = vb_dealloc_mw;
	ops->poll_cq = vb_poll_cq;
	ops->req_notify_cq = vb_req_notify_cq;
	ops->post_srq_recv = vb_post_srq_recv;
	ops->post_send = vb_post_send;
	ops->post_recv = vb_post_recv;

	v->query_port = vb_query_port;
	v->query_device_ex = vb_query_device_ex;
	v->query_rt_values = vb_query_rt_values;
	v->advise_mr = vb_advise_mr;
	v->alloc_null_mr = vb_alloc_null_mr;
	v->reg_dm_mr = vb_reg_dm_mr;
	v->alloc_dm = vb_alloc_dm;
	v->free_dm = vb_free_dm;
	v->alloc_td = vb_alloc_td;
	v->dealloc_td = vb_dealloc_td;
	v->alloc_parent_domain = vb_alloc_parent_domain;
	v->create_cq_ex = vb_create_cq_ex;
	v->modify_cq = vb_modify_cq;
	v->create_srq_ex = vb_create_srq_ex;
	v->get_srq_num = vb_get_srq_num;
	v->post_srq_ops = vb_post_srq_ops;
	v->open_xrcd = vb_open_xrcd;
	v->close_xrcd = vb_close_xrcd;
	v->create_qp_ex = vb_create_qp_ex;
	v->open_qp = vb_open_qp;
	v->modify_qp_rate_limit = vb_modify_qp_rate_limit;
	v->create_wq = vb_create_wq;
	v->modify_wq = vb_modify_wq;
	v->destroy_wq = vb_destroy_wq;
	v->create_rwq_ind_table = vb_create_table;
	v->destroy_rwq_ind_table = vb_destroy_table;
	v->ibv_create_flow = vb_create_flow;
	v->ibv_destroy_flow = vb_destroy_flow;
	v->create_flow_action_esp = vb_create_action;
	v->modify_flow_action_esp = vb_modify_action;
	v->destroy_flow_action = vb_destroy_action;
	v->create_counters = vb_create_counters;
	v->destroy_counters = vb_destroy_counters;
	v->attach_counters_point_flow = vb_attach_counters;
	v->read_counters = vb_read_counters;
}

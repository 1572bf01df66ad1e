package ucma

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/cheader"
)

// TestLayout compares the sizes and offsets with those of the kernel's header, where it and a C compiler are.
func TestLayout(t *testing.T) {
	want := map[string]int64{
		"sizeof(struct rdma_ucm_conn_param)": paramLen, "sizeof(struct rdma_ucm_ud_param)": udParamLen,
		"sizeof(struct rdma_ucm_event_resp)": eventLen, "offsetof(struct rdma_ucm_event_resp, param)": eventBody,
		"offsetof(struct rdma_ucm_event_resp, ece)": eventECE, "sizeof(struct rdma_ucm_query_addr_resp)": queryAddrLen,
		"offsetof(struct rdma_ucm_query_addr_resp, src_addr)": 16, "sizeof(struct ib_uverbs_qp_attr)": qpAttrLen,
		"sizeof(struct ib_uverbs_ah_attr)": ahAttrLen, "offsetof(struct ib_uverbs_qp_attr, pkey_index)": 124,
		"sizeof(struct rdma_ucm_create_id)": 24, "offsetof(struct rdma_ucm_create_id, response)": 8,
		"sizeof(struct rdma_ucm_bind)": 8 + sockaddrLen, "sizeof(struct rdma_ucm_resolve_addr)": 16 + 2*sockaddrLen,
		"sizeof(struct rdma_ucm_connect)": paramLen + 16, "offsetof(struct rdma_ucm_connect, id)": paramLen,
		"sizeof(struct rdma_ucm_accept)": 8 + paramLen + 16, "offsetof(struct rdma_ucm_accept, id)": 8 + paramLen,
		"sizeof(struct rdma_ucm_reject)": 8 + MaxPrivate, "offsetof(struct rdma_ucm_join_mcast, addr)": 24,
		"sizeof(struct rdma_ucm_join_mcast)": 24 + sockaddrLen, "sizeof(struct rdma_ucm_set_option)": 24,
		"offsetof(struct rdma_ucm_set_option, level)": 12, "offsetof(struct rdma_ucm_set_option, optname)": 16,
		"RDMA_OPTION_IB": LevelIB, "RDMA_OPTION_IB_PATH": OptionPath,
		"sizeof(struct ib_path_rec_data)": 72,
		"RDMA_USER_CM_CMD_JOIN_MCAST":     cmdJoinMcast,
	}
	cheader.Check(t, want, "netinet/in.h", "rdma/rdma_user_cm.h")
}

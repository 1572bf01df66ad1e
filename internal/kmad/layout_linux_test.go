package kmad

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/cheader"
)

// TestLayout compares the sizes, offsets and numbers with those of the kernel's header, where it and a C compiler are.
func TestLayout(t *testing.T) {
	const header, request = "struct ib_user_mad_hdr", "struct ib_user_mad_reg_req2"
	want := map[string]int64{
		"sizeof(" + header + ")": headerLen, "sizeof(" + request + ")": requestLen,
		"offsetof(struct ib_user_mad, data)": headerLen, "IB_USER_MAD_ABI_VERSION": abiVersion,
		"IB_USER_MAD_UNREGISTER_AGENT": cmdUnregister, "IB_USER_MAD_REGISTER_AGENT2": cmdRegister,
	}
	for of, members := range map[string]map[string]int64{
		header: {
			"id": 0, "status": 4, "timeout_ms": 8, "retries": 12, "qpn": 20, "qkey": 24, "grh_present": 32, "gid_index": 33,
			"hop_limit": 34, "traffic_class": 35, "gid": 36, "flow_label": 52, "pkey_index": 56,
		},
		request: {"id": 0, "qpn": 4, "mgmt_class": 8, "mgmt_class_version": 9, "method_mask": 16, "oui": 32},
	} {
		for name, at := range members {
			want["offsetof("+of+", "+name+")"] = at
		}
	}
	cheader.Check(t, want, "rdma/rdma_user_ioctl.h", "rdma/ib_user_mad.h")
}

package kmad

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestLayout compares the sizes, offsets and numbers with those of the kernel's header, where it and a C compiler are.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if _, e := os.Stat("/usr/include/rdma/ib_user_mad.h"); err != nil || e != nil {
		t.Skip("no C compiler, or no header rdma/ib_user_mad.h (linux-libc-dev)")
	}
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
		request: {"id": 0, "qpn": 4, "mgmt_class": 8, "mgmt_class_version": 9, "method_mask": 16},
	} {
		for name, at := range members {
			want["offsetof("+of+", "+name+")"] = at
		}
	}
	var src strings.Builder
	src.WriteString("#include <stddef.h>\n#include <rdma/ib_user_mad.h>\n#include <rdma/rdma_user_ioctl.h>\n")
	for expr, n := range want {
		src.WriteString("_Static_assert(" + expr + " == " + strconv.FormatInt(n, 10) + ", \"" + expr + "\");\n")
	}
	file := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(file, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-fsyntax-only", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

//go:build linux && (amd64 || arm64)

package hw

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// deviceOfC is a device in C, with the structures of our headers. Its functions succeed if their arguments are right.
const deviceOfC = `
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "verbena_verbs.h"
static char memory[64];
static struct ibv_pd pd;
static struct ibv_mr mr = {.lkey = 7, .rkey = 8};
static int to(struct ibv_dm *d, uint64_t off, const void *from, size_t n) { memcpy(memory + off, from, n); return 0; }
static int from(void *to, struct ibv_dm *d, uint64_t off, size_t n) { memcpy(to, memory + off, n); return 0; }
static struct ibv_dm dm = {.memcpy_to_dm = to, .memcpy_from_dm = from};
static struct ibv_dm *alloc_dm(struct ibv_context *c, struct ibv_alloc_dm_attr *a) {
	if (a->length == 64 && a->log_align_req == 3 && !a->comp_mask) return &dm;
	errno = EINVAL; return 0;
}
static int free_dm(struct ibv_dm *d) { return d == &dm ? 0 : EINVAL; }
static struct ibv_mr *reg_dm(struct ibv_pd *p, struct ibv_dm *d, uint64_t off, size_t n, unsigned access) {
	if (p == &pd && d == &dm && off == 8 && n == 16 && access == 33) return &mr;
	errno = EINVAL; return 0;
}
static struct ibv_counters n;
static int described;
static struct ibv_counters *create_counters(struct ibv_context *c, struct ibv_counters_init_attr *a) {
	return a->comp_mask ? 0 : &n;
}
static int attach(struct ibv_counters *c, struct ibv_counter_attach_attr *a, struct ibv_flow *f) {
	if (f || a->index != described || a->counter_desc != described) return EINVAL;
	described++;
	return 0;
}
static int read_counters(struct ibv_counters *c, uint64_t *v, uint32_t count, uint32_t flags) {
	if (c != &n || count != 2) return EINVAL;
	v[0] = 5; v[1] = 500;
	return 0;
}
static int destroy_counters(struct ibv_counters *c) { return c == &n ? 0 : EINVAL; }
static int posted;
static int post_wq(struct ibv_wq *q, struct ibv_recv_wr *w, struct ibv_recv_wr **bad) {
	for (; w; w = w->next) posted++;
	return 0;
}
static struct ibv_wq wq = {.wq_num = 77, .post_recv = post_wq};
static int modify_wq(struct ibv_wq *q, struct ibv_wq_attr *a) {
	return q == &wq && a->attr_mask == 3 && a->wq_state == 1 && a->curr_wq_state == 0 ? 0 : EINVAL;
}
static int destroy_wq(struct ibv_wq *q) { return pthread_mutex_trylock(&q->mutex) || posted != 3 ? EINVAL : 0; }
static struct ibv_rwq_ind_table table = {.ind_tbl_num = 9};
static struct ibv_rwq_ind_table *create_table(struct ibv_context *c, struct ibv_rwq_ind_table_init_attr *a) {
	if (a->log_ind_tbl_size == 1 && a->ind_tbl[0] == &wq && a->ind_tbl[1] == &wq && !a->comp_mask) return &table;
	errno = EINVAL; return 0;
}
static int destroy_table(struct ibv_rwq_ind_table *t) { return t == &table ? 0 : EINVAL; }
static int post_ops(struct ibv_srq *s, struct ibv_ops_wr *w, struct ibv_ops_wr **bad) {
	if (w->next) return EINVAL;
	if (w->opcode == 1) return w->tm.handle == 42 ? 0 : ENOENT;
	if (w->tm.add.num_sge != 1 || w->tm.add.sg_list->lkey != 7 || w->tm.add.tag != 3 || w->tm.add.mask != 15 ||
	    w->tm.add.recv_wr_id != 6 || w->wr_id != 5 || w->flags != 1) return EINVAL;
	w->tm.handle = 42;
	return 0;
}
static struct ibv_cq_ex cq = {.cqe = 15};
static struct ibv_cq_ex *create_cq(struct ibv_context *c, struct ibv_cq_init_attr_ex *a) {
	if (a->cqe == 10 && a->wc_flags == (127 | 1 << 7) && !a->comp_mask) return &cq;
	errno = EINVAL; return 0;
}
static int tables[] = {2, 8}; // the lengths of the GID tables of the ports
int query_port_of_c(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a) {
	if (port < 1 || port > 2) return EINVAL;
	a->gid_tbl_len = tables[port - 1];
	return 0;
}
// As the kernel: the entries of all ports that are not empty, or -EINVAL.
ssize_t query_gids_of_c(struct ibv_context *c, struct ibv_gid_entry *e, size_t most, uint32_t flags, size_t size) {
	size_t n = 0;
	for (int port = 1; port <= 2; port++)
		for (int i = 0; i < tables[port - 1]; i++) {
			if (n == most) return -EINVAL;
			e[n] = (struct ibv_gid_entry){.gid_index = i, .port_num = port, .gid_type = 2};
			e[n++].gid.raw[15] = 16 * port + i;
		}
	return n;
}
static char built[100];
static void built_start(struct ibv_qp_ex *q) {}
static int built_complete(struct ibv_qp_ex *q) { return 0; }
static void built_write(struct ibv_qp_ex *q, uint32_t rkey, uint64_t at) { strcat(built, "write "); }
static void built_inv(struct ibv_qp_ex *q, uint32_t rkey) { strcat(built, "inv "); }
static void built_bind(struct ibv_qp_ex *q, struct ibv_mw *m, uint32_t rkey, const struct ibv_mw_bind_info *i) {
	strcat(built, "bind ");
}
static void built_srqn(struct ibv_qp_ex *q, uint32_t n) { strcat(built, "srqn "); }
static void built_sges(struct ibv_qp_ex *q, size_t n, const struct ibv_sge *list) { strcat(built, "sges "); }
static void built_tso(struct ibv_qp_ex *q, void *header, uint16_t size, uint16_t mss) {
	sprintf(built + strlen(built), "%d to %d ", size, ((char *)header)[size - 1]);
}
static struct ibv_qp_ex qp = {
	.wr_send_tso = built_tso,
	.wr_start = built_start, .wr_complete = built_complete, .wr_rdma_write = built_write, .wr_local_inv = built_inv,
	.wr_bind_mw = built_bind, .wr_set_xrc_srqn = built_srqn, .wr_set_sge_list = built_sges,
};
void *qp_of_c(void) { return &qp; }
void *ex_of_c(struct ibv_qp *q) { return q; }
static struct ibv_qp *create_qp(struct ibv_context *c, struct ibv_qp_init_attr_ex *a) { return &qp.qp_base; }
char *built_of_c(void) { return built; }
static struct verbs_context v = {
	.create_cq_ex = create_cq, .create_qp_ex = create_qp,
	.alloc_dm = alloc_dm, .free_dm = free_dm, .reg_dm_mr = reg_dm, .create_counters = create_counters,
	.attach_counters_point_flow = attach, .read_counters = read_counters, .destroy_counters = destroy_counters,
	.modify_wq = modify_wq, .destroy_wq = destroy_wq, .create_rwq_ind_table = create_table,
	.destroy_rwq_ind_table = destroy_table, .post_srq_ops = post_ops, .sz = sizeof v,
	.context = {.abi_compat = VB_ABI_EXTENDED},
};
void *context_of_c(void) { return &v.context; }
void *pd_of_c(void) { return &pd; }
void *wq_of_c(void) { return &wq; }
struct ibv_mr *dmabuf(struct ibv_pd *p, uint64_t off, size_t n, uint64_t iova, int fd, int access) {
	if (p == &pd && off == 4096 && n == 100 && iova == 0x123400000000 && fd == 5 && access == 5) return &mr;
	errno = EBADF; return 0;
}
`

// contextOfC returns a context of the device in C, and a PD of it.
func contextOfC(t *testing.T) (*devContext, *pd) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	file := filepath.Join(t.TempDir(), "device.so")
	cmd := exec.Command("gcc", "-shared", "-fPIC", "-I../../cabi/abi", "-D_GNU_SOURCE", "-w", "-x", "c", "-o", file, "-")
	cmd.Stdin = strings.NewReader(deviceOfC)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l := &library{}
	for name, fn := range map[string]*uintptr{"__errno_location": &l.errnoLocation, "pthread_mutex_init": &l.mutexInit,
		"pthread_cond_init": &l.condInit} {
		*fn = symbol(t, "libc.so.6", name)
	}
	l.regDMABuf, l.qpToQPEx = symbol(t, file, "dmabuf"), symbol(t, file, "ex_of_c")
	l.queryPort, l.queryGIDTable = symbol(t, file, "query_port_of_c"), symbol(t, file, "query_gids_of_c")
	c := &devContext{lib: l, ptr: call(symbol(t, file, "context_of_c"))}
	c.wqs.Store("wq", call(symbol(t, file, "wq_of_c")))
	c.qps.Store("qp", call(symbol(t, file, "qp_of_c")))
	c.qps.Store("built", call(symbol(t, file, "built_of_c")))
	return c, &pd{ctx: c, ptr: call(symbol(t, file, "pd_of_c"))}
}

func good[V any](v V, err error) func(t *testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func isGood(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// TestDeviceMemory allocates, copies and registers memory of a device, and registers a dma-buf.
func TestDeviceMemory(t *testing.T) {
	c, p := contextOfC(t)
	d := good(c.AllocDM(64, 3))(t)
	isGood(t, d.CopyTo(8, []byte("text")))
	isGood(t, d.CopyTo(8, nil))
	got := make([]byte, 6)
	isGood(t, d.CopyFrom(got, 7))
	if string(got) != "\x00text\x00" {
		t.Errorf("%q", got)
	}
	m := good(p.RegDMMR(d, 8, 16, verbs.AccessZeroBased|verbs.AccessLocalWrite))(t)
	if m.LKey() != 7 || m.RKey() != 8 {
		t.Errorf("keys %d and %d", m.LKey(), m.RKey())
	}
	isGood(t, d.Free())
	if _, err := c.AllocDM(65, 3); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a refused size: %v", err)
	}
	m = good(p.RegDMABufMR(4096, 100, 0x123400000000, 5, verbs.AccessLocalWrite|verbs.AccessRemoteRead))(t)
	if m.LKey() != 7 {
		t.Errorf("lkey %d", m.LKey())
	}
	if _, err := p.RegDMABufMR(4096, 100, 0, 5, 0); err == nil {
		t.Error("a refused dma-buf: no error")
	}
	c.lib.regDMABuf = 0
	if _, err := p.RegDMABufMR(4096, 100, 0, 5, 0); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("an old library: %v", err)
	}
}

// TestFieldsOfCompletions asks for a field beyond those of struct ibv_wc. Poll reads those too: the device must be
// asked for all of them.
func TestFieldsOfCompletions(t *testing.T) {
	c, _ := contextOfC(t)
	q := good(c.CreateCQ(10, &verbs.CQOptions{WCFlags: verbs.WCExWithCompletionTimestamp}, nil))(t)
	if q.Cap() != 15 {
		t.Errorf("room for %d, want 15", q.Cap())
	}
}

// TestCounters reads counters of flow rules.
func TestCounters(t *testing.T) {
	c, _ := contextOfC(t)
	n := good(c.CreateCounters())(t)
	packets, bytes, err := n.Read()
	if packets != 5 || bytes != 500 || err != nil {
		t.Errorf("%d packets, %d bytes, %v", packets, bytes, err)
	}
	if err := n.Attach(nil); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("a rule that exists: %v", err)
	}
	isGood(t, n.Destroy())
}

// TestWorkQueues moves a work queue, posts to it, and makes a table of it.
func TestWorkQueues(t *testing.T) {
	c, _ := contextOfC(t)
	ptr, _ := c.wqs.Load("wq")
	w := &wq{ctx: c, ptr: ptr.(uintptr)}
	w.rq.init(w.ptr, *at[uintptr](w.ptr + offWQPostRecv))
	c.lib.initLock(w.ptr+offWQMutex, w.ptr+offWQCond)
	if w.WQN() != 77 || w.State() != verbs.WQSReset {
		t.Errorf("number %d, %v", w.WQN(), w.State())
	}
	if _, err := w.PostRecv(make([]verbs.RecvWR, 1)); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a receive in RESET: %v", err)
	}
	isGood(t, w.Modify(verbs.WQSReset, verbs.WQSReady, 0, 0))
	if n, err := w.PostRecv(make([]verbs.RecvWR, 3)); n != 3 || err != nil || w.State() != verbs.WQSReady {
		t.Errorf("%d receives, %v, %v", n, err, w.State())
	}
	if err := w.Modify(verbs.WQSReady, verbs.WQSErr, 0, 0); !errors.Is(err, verbs.EINVAL) || w.State() != verbs.WQSReady {
		t.Errorf("a refused change: %v, %v", err, w.State())
	}
	table := good(c.CreateRWQIndTable([]verbs.DriverWQ{w, w}))(t)
	if table.Num() != 9 {
		t.Errorf("number %d", table.Num())
	}
	isGood(t, table.Destroy())
	isGood(t, w.Destroy())
	if _, err := w.PostRecv(make([]verbs.RecvWR, 1)); err == nil {
		t.Error("a receive after Destroy: no error")
	}
}

// TestTagMatching posts operations, of which the last is refused.
func TestTagMatching(t *testing.T) {
	c, _ := contextOfC(t)
	s := &srq{ctx: c, ptr: 1}
	ops := []verbs.OpsWR{
		{WRID: 5, Opcode: verbs.TagAdd, Flags: verbs.OpsSignaled, RecvWRID: 6, Tag: 3, Mask: 15,
			SGList: []verbs.SGE{{Addr: 8, Length: 8, LKey: 7}}},
		{Opcode: verbs.TagDel, Handle: 42}, {Opcode: verbs.TagDel, Handle: 1},
	}
	n, err := s.PostOps(ops)
	if n != 2 || err == nil || ops[0].Handle != 42 {
		t.Errorf("%d operations, %v, handle %d", n, err, ops[0].Handle)
	}
}

// TestSettersOfXRC posts to an XRC_SEND QP. The setter of the SRQ's number is for requests that reach the peer: after
// another one, a device would write the number into the request that it has just finished.
func TestSettersOfXRC(t *testing.T) {
	c, p := contextOfC(t)
	ex, _ := c.qps.Load("qp")
	built, _ := c.qps.Load("built")
	q := &qp{ctx: c, pd: p, typ: verbs.QPTypeXRCSend, ex: ex.(uintptr)}
	q.sq.init(q.ex, &cQPCap{}, 0)
	wrs := []verbs.SendWR{{Opcode: verbs.WRLocalInv}, {Opcode: verbs.WRBindMW}, {Opcode: verbs.WRRDMAWrite}}
	n, err := q.PostSendAll(wrs)
	const want = "inv bind write srqn sges "
	if got := text(built.(uintptr), 100); n != 3 || err != nil || got != want {
		t.Errorf("%d requests, %v: %q, want %q", n, err, got, want)
	}
}

// TestLongHeaders posts the longest header that a QP has, which is longer than the room that every queue has.
func TestLongHeaders(t *testing.T) {
	c, p := contextOfC(t)
	built, _ := c.qps.Load("built")
	q := &qp{ctx: c, pd: p, typ: verbs.QPTypeRawPacket}
	init := &verbs.QPInitAttr{MaxTSOHeader: minData + 44, SendOpsFlags: verbs.QPExWithTSO}
	isGood(t, q.create(&cQPInitAttr{}, init))
	header := make([]byte, init.MaxTSOHeader)
	header[len(header)-1] = 9
	n, err := q.PostSendAll([]verbs.SendWR{{Opcode: verbs.WRTSO, TSO: &verbs.TSO{Hdr: header, MSS: 100}}})
	const want = "300 to 9 sges "
	if got := text(built.(uintptr), 100); n != 1 || err != nil || got != want {
		t.Errorf("%d requests, %v: %q, want %q", n, err, got, want)
	}
}

// TestExtendedQPsOfOldLibraries has a library without ibv_qp_to_qp_ex.
func TestExtendedQPsOfOldLibraries(t *testing.T) {
	c, p := contextOfC(t)
	c.lib.qpToQPEx = 0
	q := &qp{ctx: c, pd: p, typ: verbs.QPTypeRC}
	err := q.create(&cQPInitAttr{}, &verbs.QPInitAttr{SendOpsFlags: verbs.QPExWithSend})
	if !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("%v, want EOPNOTSUPP", err)
	}
}

// TestGIDTablesOfUnequalPorts reads the tables of a device whose ports have tables of different lengths.
func TestGIDTablesOfUnequalPorts(t *testing.T) {
	c, _ := contextOfC(t)
	c.attr.PhysPortCnt = 2
	for i, want := range []int{2, 8} {
		table, err := c.GIDTable(uint8(i + 1))
		if err != nil || len(table) != want {
			t.Fatalf("port %d: %d entries, want %d, %v", i+1, len(table), want, err)
		}
		for k, e := range table {
			if e.GID[15] != uint8(16*(i+1)+k) {
				t.Errorf("port %d, index %d: %v", i+1, k, e.GID)
			}
		}
	}
}

// TestBindOfNothing translates a bind without a region: a library that follows the pointer gets one.
func TestBindOfNothing(t *testing.T) {
	q := &qp{ctx: &devContext{}}
	for _, b := range []*verbs.MWBindInfo{nil, {}} {
		if c := q.bindInfo(b); c != (cBindInfo{}) {
			t.Errorf("%+v", c)
		}
	}
	q.ctx.noRegion = new([16]uint64)
	for _, b := range []*verbs.MWBindInfo{nil, {}} {
		if c := q.bindInfo(b); c.mr == 0 || *at[uint32](c.mr + offMRLKey) != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestMissingExtensions has a device without them.
func TestMissingExtensions(t *testing.T) {
	c, p := contextOfC(t)
	for off := uintptr(extSize) + 8; off <= extQueryPort; off += 8 {
		*at[uintptr](c.ptr - off) = 0
	}
	_, dmErr := c.AllocDM(64, 3)
	_, regErr := p.RegDMMR(&dm{c, 1}, 8, 16, 0)
	_, countErr := c.CreateCounters()
	_, tableErr := c.CreateRWQIndTable([]verbs.DriverWQ{&wq{}})
	_, opsErr := (&srq{ctx: c}).PostOps([]verbs.OpsWR{{}})
	for _, err := range []error{dmErr, regErr, countErr, tableErr, opsErr} {
		if !errors.Is(err, verbs.EOPNOTSUPP) {
			t.Errorf("%v", err)
		}
	}
}

// Device memory that another context imports; buffers of the library, and regions by a structure of attributes. The
// latter came after release 44: the program declares them itself and finds them by name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { IOVA = 1, ADDR = 2, FD = 4, BUF = 32 };

struct attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

static void import_memory(struct ibv_context *ctx)
{
	struct ibv_alloc_dm_attr size = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &size);
	CHECK(dm);
	struct ibv_context *other = ibv_import_device(dup(ctx->cmd_fd));
	CHECK(other);
	CHECK(!ibv_import_dm(other, dm->handle + 1000) && errno == ENOENT);
	struct ibv_dm *same = ibv_import_dm(other, dm->handle);
	CHECK(same && same->handle == dm->handle);
	char text[64] = "written to one", got[64] = "";
	CHECK(ibv_memcpy_to_dm(dm, 0, text, sizeof text) == 0);
	CHECK(ibv_memcpy_from_dm(got, same, 0, sizeof got) == 0);
	CHECK(!strcmp(text, got));
	CHECK(ibv_free_dm(dm) == EBUSY);
	ibv_unimport_dm(same);
	CHECK(ibv_free_dm(dm) == 0);
	CHECK(ibv_close_device(other) == 0);
}

static void register_by_attributes(struct ibv_pd *pd, struct ibv_pd *other)
{
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct attr *) = dlsym(RTLD_DEFAULT, "ibv_reg_mr_ex");
	struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) = dlsym(RTLD_DEFAULT, "ibv_reg_buf_mr");
	void *(*alloc_buf)(struct ibv_pd *, size_t, void **) = dlsym(RTLD_DEFAULT, "ibv_alloc_buf");
	void (*free_buf)(void *) = dlsym(RTLD_DEFAULT, "ibv_free_buf");
	CHECK(reg_mr_ex && reg_buf_mr && alloc_buf && free_buf);

	char memory[64];
	struct attr a = {.length = sizeof memory, .access = IBV_ACCESS_LOCAL_WRITE, .comp_mask = ADDR, .addr = memory};
	struct ibv_mr *mr = reg_mr_ex(pd, &a);
	CHECK(mr && mr->addr == memory && mr->length == sizeof memory && ibv_dereg_mr(mr) == 0);
	a.comp_mask = ADDR | FD;
	CHECK(!reg_mr_ex(pd, &a) && errno == EINVAL);
	a.comp_mask = FD;
	CHECK(!reg_mr_ex(pd, &a) && errno == EOPNOTSUPP);
	a.comp_mask = IOVA;
	CHECK(!reg_mr_ex(pd, &a) && errno == EINVAL);

	void *buf;
	char *addr = alloc_buf(pd, 100, &buf);
	CHECK(addr && (uintptr_t)addr % 4096 == 0);
	CHECK(!reg_buf_mr(other, buf, addr, 100, 0) && errno == EINVAL);
	CHECK(!reg_buf_mr(pd, buf, addr - 1, 2, 0) && errno == EINVAL);
	CHECK(!reg_buf_mr(pd, buf, addr + 50, 51, 0) && errno == EINVAL);
	mr = reg_buf_mr(pd, buf, addr + 50, 50, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	free_buf(buf);
	CHECK(!alloc_buf(pd, 0, &buf) && errno == EINVAL);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	CHECK(ctx);
	import_memory(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *other = ibv_alloc_pd(ctx);
	CHECK(pd && other);
	register_by_attributes(pd, other);
	CHECK(ibv_close_device(ctx) == 0);
	return 0;
}

// Buffers that the library allocates, and regions by a structure of attributes. Both came after release 44.
#include "lib.h"

#include <sys/mman.h>

struct ibv_buf {
	struct ibv_pd *pd;
	void *addr;
	size_t size;
};

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **out)
{
	struct ibv_buf *b = malloc(sizeof *b);

	if (!b)
		VB_FAIL(ENOMEM, NULL);
	*b = (struct ibv_buf){.pd = pd, .size = size};
	b->addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->addr == MAP_FAILED) {
		int e = errno;
		free(b);
		VB_FAIL(e, NULL);
	}
	*out = b;
	return b->addr;
}

void ibv_free_buf(struct ibv_buf *b)
{
	munmap(b->addr, b->size);
	free(b);
}

// The memory is not a DMA buffer of the kernel.
int ibv_export_buf_dmabuf_fd(struct ibv_buf *b) { VB_FAIL(ENODATA, -1); }

static int within(const struct ibv_buf *b, struct ibv_pd *pd, const void *addr, size_t length)
{
	uintptr_t at = (uintptr_t)addr, first = (uintptr_t)b->addr;

	return pd == b->pd && at >= first && at - first <= b->size && length <= b->size - (at - first);
}

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *a)
{
	const uint64_t file = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
	const uint64_t known = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
	uint64_t mask = a->comp_mask;

	if (mask & file && mask & (IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF))
		VB_FAIL(EINVAL, NULL);
	if (mask & ~known)
		VB_FAIL(EOPNOTSUPP, NULL);
	if (!(mask & IBV_REG_MR_MASK_ADDR))
		VB_FAIL(EINVAL, NULL);
	if (mask & IBV_REG_MR_MASK_BUF && !within(a->buf, pd, a->addr, a->length))
		VB_FAIL(EINVAL, NULL);
	uint64_t iova = mask & IBV_REG_MR_MASK_IOVA ? a->iova : (uintptr_t)a->addr;
	return ibv_reg_mr_iova2(pd, a->addr, a->length, iova, a->access);
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *b, void *addr, size_t length, int access)
{
	struct ibv_mr_init_attr a = {.length = length, .access = access, .addr = addr, .buf = b,
				     .comp_mask = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR};

	return ibv_reg_mr_ex(pd, &a);
}

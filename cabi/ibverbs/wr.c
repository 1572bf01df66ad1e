// The ibv_wr_* functions: they build a list of requests here, which wr_complete posts at once.
#include "lib.h"

// grow makes room for n more elements behind used ones. It returns NULL if there is no memory.
static void *grow(void *list, uint32_t used, uint32_t *room, uint64_t n, size_t size)
{
	uint64_t want = *room ? *room : 16;

	if (used + n <= *room)
		return list;
	while (want < used + n)
		want *= 2;
	if (want > UINT32_MAX / 2)
		return NULL;
	list = realloc(list, want * size);
	if (list)
		*room = want;
	return list;
}

static void fault(struct vb_qp *q, int e)
{
	if (!q->err)
		q->err = e;
}

// begin starts a request. Without memory it returns one that is not posted.
static struct vrb_wr *begin(struct ibv_qp_ex *o, enum ibv_wr_opcode op)
{
	static __thread struct vrb_wr none;
	struct vb_qp *q = VB(qp, o);
	struct vrb_wr *list = grow(q->wrs, q->num_wrs, &q->room_wrs, 1, sizeof *list);

	if (!list) {
		fault(q, ENOMEM);
		return &none;
	}
	q->wrs = list;
	struct vrb_wr *w = &list[q->num_wrs++];
	*w = (struct vrb_wr){.wr_id = o->wr_id, .flags = o->wr_flags & ~(uint32_t)IBV_SEND_INLINE, .opcode = op};
	return w;
}

// last returns the request that a setter completes.
static struct vrb_wr *last(struct vb_qp *q)
{
	static __thread struct vrb_wr none;

	if (q->num_wrs)
		return &q->wrs[q->num_wrs - 1];
	fault(q, EINVAL);
	return &none;
}

// put copies bytes and returns where they are.
static uint32_t put(struct vb_qp *q, const void *from, size_t n)
{
	uint32_t at = q->num_bytes;
	uint8_t *bytes = n > UINT32_MAX / 4 ? NULL : grow(q->bytes, at, &q->room_bytes, n, 1);

	if (!bytes && n) {
		fault(q, n > UINT32_MAX / 4 ? EINVAL : ENOMEM);
		return 0;
	}
	if (bytes)
		q->bytes = bytes;
	if (n)
		memcpy(q->bytes + at, from, n);
	q->num_bytes += n;
	return at;
}

static void remote(struct vrb_wr *w, uint32_t rkey, uint64_t addr)
{
	w->rkey = rkey;
	w->remote_addr = addr;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct vrb_wr *w = begin(o, IBV_WR_ATOMIC_CMP_AND_SWP);

	remote(w, rkey, addr);
	w->compare_add = compare;
	w->swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct vrb_wr *w = begin(o, IBV_WR_ATOMIC_FETCH_AND_ADD);

	remote(w, rkey, addr);
	w->compare_add = add;
}

static void wr_atomic_write(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr, const void *value)
{
	struct vrb_wr *w = begin(o, IBV_WR_ATOMIC_WRITE);

	remote(w, rkey, addr);
	w->data_start = put(VB(qp, o), value, 8);
	w->data_len = 8;
}

static void wr_bind_mw(struct ibv_qp_ex *o, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct vrb_wr *w = begin(o, IBV_WR_BIND_MW);

	w->mw = VB_H(mw, mw);
	w->rkey = rkey;
	w->mr = VB_H(mr, info->mr);
	w->bind_addr = info->addr;
	w->bind_length = info->length;
	w->bind_access = info->mw_access_flags;
}

static void wr_local_inv(struct ibv_qp_ex *o, uint32_t rkey) { begin(o, IBV_WR_LOCAL_INV)->imm = rkey; }

static void wr_rdma_read(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr)
{
	remote(begin(o, IBV_WR_RDMA_READ), rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr)
{
	remote(begin(o, IBV_WR_RDMA_WRITE), rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr, uint32_t imm)
{
	struct vrb_wr *w = begin(o, IBV_WR_RDMA_WRITE_WITH_IMM);

	remote(w, rkey, addr);
	w->imm = imm;
}

static void wr_send(struct ibv_qp_ex *o) { begin(o, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *o, uint32_t imm) { begin(o, IBV_WR_SEND_WITH_IMM)->imm = imm; }
static void wr_send_inv(struct ibv_qp_ex *o, uint32_t rkey) { begin(o, IBV_WR_SEND_WITH_INV)->imm = rkey; }

static void wr_send_tso(struct ibv_qp_ex *o, void *header, uint16_t length, uint16_t mss)
{
	struct vrb_wr *w = begin(o, IBV_WR_TSO);

	w->hdr_start = put(VB(qp, o), header, length);
	w->hdr_len = length;
	w->mss = mss;
}

static void wr_flush(struct ibv_qp_ex *o, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	struct vrb_wr *w = begin(o, IBV_WR_FLUSH);

	remote(w, rkey, addr);
	w->flush_length = length > UINT32_MAX ? UINT32_MAX : length; // too long either way
	w->flush_type = type;
	w->flush_level = level;
}

static void wr_set_ud_addr(struct ibv_qp_ex *o, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct vrb_wr *w = last(VB(qp, o));

	w->ah = VB_H(ah, ah);
	w->remote_qpn = qpn;
	w->remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *o, uint32_t srqn) { last(VB(qp, o))->remote_srqn = srqn; }

static void wr_set_inline_data(struct ibv_qp_ex *o, void *from, size_t length)
{
	struct vrb_wr *w = last(VB(qp, o));

	w->data_start = put(VB(qp, o), from, length);
	w->data_len = length;
	w->flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *o, size_t count, const struct ibv_data_buf *list)
{
	struct vrb_wr *w = last(VB(qp, o));

	w->data_start = VB(qp, o)->num_bytes;
	w->data_len = 0;
	w->flags |= IBV_SEND_INLINE;
	for (size_t i = 0; i < count; i++) {
		put(VB(qp, o), list[i].addr, list[i].length);
		w->data_len += list[i].length;
	}
}

static void wr_set_sge_list(struct ibv_qp_ex *o, size_t count, const struct ibv_sge *list)
{
	struct vb_qp *q = VB(qp, o);
	struct vrb_wr *w = last(q);
	struct ibv_sge *sges = count > UINT16_MAX ? NULL : grow(q->sges, q->num_sges, &q->room_sges, count, sizeof *sges);

	if (!sges && count) {
		fault(q, count > UINT16_MAX ? EINVAL : ENOMEM);
		return;
	}
	if (sges)
		q->sges = sges;
	if (count)
		memcpy(q->sges + q->num_sges, list, count * sizeof *list);
	w->first_sge = q->num_sges;
	w->num_sge = count;
	q->num_sges += count;
}

static void wr_set_sge(struct ibv_qp_ex *o, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(o, 1, &sge);
}

static void wr_start(struct ibv_qp_ex *o)
{
	struct vb_qp *q = VB(qp, o);

	pthread_mutex_lock(&q->build);
	q->num_wrs = q->num_sges = q->num_bytes = 0;
	q->err = 0;
}

static int wr_complete(struct ibv_qp_ex *o)
{
	struct vb_qp *q = VB(qp, o);
	int e = VB_DEAD(q) ? EIO : q->err;

	if (!e && q->num_wrs)
		e = vb_engine->post_list(q->h, q->wrs, q->num_wrs, q->sges, q->bytes);
	pthread_mutex_unlock(&q->build);
	return e;
}

static void wr_abort(struct ibv_qp_ex *o) { pthread_mutex_unlock(&VB(qp, o)->build); }

void vb_fill_qp_ex(struct ibv_qp_ex *o)
{
	o->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	o->wr_atomic_fetch_add = wr_atomic_fetch_add;
	o->wr_bind_mw = wr_bind_mw;
	o->wr_local_inv = wr_local_inv;
	o->wr_rdma_read = wr_rdma_read;
	o->wr_rdma_write = wr_rdma_write;
	o->wr_rdma_write_imm = wr_rdma_write_imm;
	o->wr_send = wr_send;
	o->wr_send_imm = wr_send_imm;
	o->wr_send_inv = wr_send_inv;
	o->wr_send_tso = wr_send_tso;
	o->wr_set_ud_addr = wr_set_ud_addr;
	o->wr_set_xrc_srqn = wr_set_xrc_srqn;
	o->wr_set_inline_data = wr_set_inline_data;
	o->wr_set_inline_data_list = wr_set_inline_data_list;
	o->wr_set_sge = wr_set_sge;
	o->wr_set_sge_list = wr_set_sge_list;
	o->wr_start = wr_start;
	o->wr_complete = wr_complete;
	o->wr_abort = wr_abort;
	o->wr_atomic_write = wr_atomic_write;
	o->wr_flush = wr_flush;
}

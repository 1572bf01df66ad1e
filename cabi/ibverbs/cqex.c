// Extended completion queues: completions come from the engine VB_PREFETCH at a time, and the program reads them here.
#include "lib.h"

static void lock(struct vb_cq *q)
{
	if (!q->alone)
		pthread_mutex_lock(&q->poll);
}

static void unlock(struct vb_cq *q)
{
	if (!q->alone)
		pthread_mutex_unlock(&q->poll);
}

// fetch fills the empty buffer.
static int fetch(struct vb_cq *q)
{
	if (VB_DEAD(q))
		return EIO;
	int n = vb_engine->poll_ex(q->h, VB_PREFETCH, q->wcs);
	q->head = 0;
	q->count = n > 0 ? n : 0;
	q->more = n == VB_PREFETCH;
	return n > 0 ? 0 : n == 0 ? ENOENT : EIO;
}

// show makes the next completion the one that the program reads.
static int show(struct vb_cq *q)
{
	q->now = q->head++;
	q->count--;
	q->o.wr_id = q->wcs[q->now].wr_id;
	q->o.status = q->wcs[q->now].status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *o, struct ibv_poll_cq_attr *a)
{
	struct vb_cq *q = VB(cq, o);

	if (a && a->comp_mask)
		return EINVAL;
	lock(q);
	int e = q->count ? 0 : fetch(q);
	if (!e)
		return show(q);
	unlock(q);
	return e;
}

static int next_poll(struct ibv_cq_ex *o)
{
	struct vb_cq *q = VB(cq, o);

	if (q->count)
		return show(q);
	if (!q->more) // the queue was empty after this completion
		return ENOENT;
	int e = fetch(q);
	return e ? e : show(q);
}

static void end_poll(struct ibv_cq_ex *o) { unlock(VB(cq, o)); }

static struct vrb_wc *current(struct ibv_cq_ex *o) { return &VB(cq, o)->wcs[VB(cq, o)->now]; }

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *o) { return current(o)->opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *o) { return current(o)->vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *o) { return current(o)->byte_len; }
static uint32_t read_imm_data(struct ibv_cq_ex *o) { return current(o)->imm; }
static uint32_t read_qp_num(struct ibv_cq_ex *o) { return current(o)->qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex *o) { return current(o)->src_qp; }
static unsigned int read_wc_flags(struct ibv_cq_ex *o) { return current(o)->wc_flags; }
static uint32_t read_slid(struct ibv_cq_ex *o) { return current(o)->slid; }
static uint8_t read_sl(struct ibv_cq_ex *o) { return current(o)->sl; }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex *o) { return current(o)->dlid_path_bits; }
static uint64_t read_completion_ts(struct ibv_cq_ex *o) { return current(o)->timestamp; }
static uint16_t read_cvlan(struct ibv_cq_ex *o) { return current(o)->cvlan; }
static uint32_t read_flow_tag(struct ibv_cq_ex *o) { return current(o)->flow_tag; }
static uint64_t read_wallclock(struct ibv_cq_ex *o) { return current(o)->wallclock; }

static void read_tm_info(struct ibv_cq_ex *o, struct ibv_wc_tm_info *info)
{
	*info = (struct ibv_wc_tm_info){.tag = current(o)->tm_tag, .priv = current(o)->tm_priv};
}

void vb_fill_cq_ex(struct vb_cq *q)
{
	struct ibv_cq_ex *o = &q->o;

	o->start_poll = start_poll;
	o->next_poll = next_poll;
	o->end_poll = end_poll;
	o->read_opcode = read_opcode;
	o->read_vendor_err = read_vendor_err;
	o->read_byte_len = read_byte_len;
	o->read_imm_data = read_imm_data;
	o->read_qp_num = read_qp_num;
	o->read_src_qp = read_src_qp;
	o->read_wc_flags = read_wc_flags;
	o->read_slid = read_slid;
	o->read_sl = read_sl;
	o->read_dlid_path_bits = read_dlid_path_bits;
	o->read_completion_ts = read_completion_ts;
	o->read_cvlan = read_cvlan;
	o->read_flow_tag = read_flow_tag;
	o->read_tm_info = read_tm_info;
	o->read_completion_wallclock_ns = read_wallclock;
}

static void plain(struct ibv_wc *to, const struct vrb_wc *from)
{
	*to = (struct ibv_wc){.wr_id = from->wr_id, .status = from->status, .opcode = from->opcode,
			      .vendor_err = from->vendor_err, .byte_len = from->byte_len, .imm_data = from->imm,
			      .qp_num = from->qp_num, .src_qp = from->src_qp, .wc_flags = from->wc_flags,
			      .pkey_index = from->pkey_index, .slid = from->slid, .sl = from->sl,
			      .dlid_path_bits = from->dlid_path_bits};
}

int vb_take_fetched(struct vb_cq *q, int count, struct ibv_wc *wcs)
{
	int n = 0;

	lock(q);
	for (; n < count && q->count; n++, q->head++, q->count--)
		plain(&wcs[n], &q->wcs[q->head]);
	unlock(q);
	return n;
}

// The completion that the program reads stays in its place.
void vb_purge(struct ibv_cq *o, uint32_t qp_num)
{
	struct vb_cq *q = VB(cq, o);
	int kept = 0;

	if (!q || !q->wcs)
		return;
	lock(q);
	for (int i = 0; i < q->count; i++)
		if (q->wcs[q->head + i].qp_num != qp_num)
			q->wcs[q->head + kept++] = q->wcs[q->head + i];
	q->count = kept;
	unlock(q);
}

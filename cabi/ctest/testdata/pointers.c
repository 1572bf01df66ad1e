// A program's *bad, and its list of SGEs if num_sge is 0, may hold anything. Here they hold what once were pointers to
// memory of the engine: handles of CQs that were destroyed. The garbage collector must not take them for its own.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "device.h"

enum { CQS = 1000 };

static struct ibv_context *ctx;
static atomic_int over;
static void *handles[CQS];

static struct ibv_cq *make(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);

	CHECK(cq);
	return cq;
}

// collect keeps the collector busy.
static void *collect(void *arg)
{
	while (!atomic_load(&over))
		CHECK(!ibv_destroy_cq(make()));
	return NULL;
}

// outdated fills handles. The library has the handle behind the structure.
static void outdated(void)
{
	static struct ibv_cq *cqs[CQS];

	for (int i = 0; i < CQS; i++) {
		cqs[i] = make();
		memcpy(&handles[i], (char *)cqs[i] + sizeof(struct ibv_cq_ex), sizeof handles[i]);
	}
	for (int i = 0; i < CQS; i++)
		CHECK(!ibv_destroy_cq(cqs[i]));
}

static void post(struct ibv_qp *qp, struct ibv_srq *srq, void *old)
{
	struct ibv_recv_wr few = {.num_sge = -1}, none = {.sg_list = old}, *bad = old;
	struct ibv_send_wr send = {.sg_list = old}, *sbad = old;

	CHECK(ibv_post_recv(qp, &few, &bad) && bad == &few);
	bad = old;
	CHECK(ibv_post_srq_recv(srq, &few, &bad) && bad == &few);
	bad = old;
	CHECK(ibv_post_recv(qp, &none, &bad) && bad == &none); // RESET
	CHECK(ibv_post_send(qp, &send, &sbad) && sbad == &send);
}

int main(void)
{
	pthread_t t;

	CHECK(ctx = open_device("vrb_lo"));
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = make();
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	CHECK(pd);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	CHECK(qp && srq);
	outdated();
	CHECK(!pthread_create(&t, NULL, collect, NULL));
	for (int i = 0; i < 20 * CQS; i++)
		post(qp, srq, handles[i % CQS]);
	atomic_store(&over, 1);
	CHECK(!pthread_join(t, NULL));
	return 0;
}

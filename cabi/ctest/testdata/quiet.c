// The engine does not interrupt the program: no thread gets a SIGURG, by which Go's runtime takes turns otherwise, and
// no wait of the program ends early. Objects that are made and destroyed keep the garbage collector busy meanwhile.
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "check.h"
#include "device.h"

enum { THREADS = 4, OBJECTS = 10000, POLLS = 200 };

static atomic_int got, interrupted, done;

static void handler(int sig) { got++; }

static void *work_and_wait(void *cq)
{
	struct ibv_wc wc;

	while (!done) {
		for (int i = 0; i < POLLS; i++)
			CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		if (poll(NULL, 0, 1) < 0)
			interrupted++;
	}
	return NULL;
}

int main(void)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
	struct ibv_context *c = open_device("vrb_lo");
	CHECK(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	pthread_t t[THREADS];

	CHECK(cq && !sigaction(SIGURG, &a, NULL));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, work_and_wait, cq));
	for (int i = 0; i < OBJECTS; i++) {
		struct ibv_cq *o = ibv_create_cq(c, 1000, NULL, NULL, 0);
		CHECK(o && !ibv_destroy_cq(o));
	}
	done = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(t[i], NULL));
	CHECK(!got);
	CHECK(!interrupted);
	return 0;
}

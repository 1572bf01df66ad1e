// A program that has a handler of SIGURG gets each of these signals, whether it installs the handler before or after it
// opens a device, although the engine's runtime replaces it. A forked child has an engine of its own.
//
// A handler that is installed after has SA_ONSTACK: without it, and until the program makes an object, it may run on the
// small stack of the engine in a thread that calls the library.
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "device.h"

static atomic_int got;

// The signals of kill. The engine's own, which come if a peer misbehaves, are of tgkill.
static void handler(int sig, siginfo_t *info, void *context)
{
	if (info->si_code == SI_USER)
		got++;
}

static void install(int flags)
{
	struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | flags};

	CHECK(!sigaction(SIGURG, &a, NULL));
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_context *c = open_device("vrb_lo");
	CHECK(c);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = pd && cq ? ibv_create_qp(pd, &init) : NULL;
	CHECK(qp);
	return qp;
}

static void take(struct ibv_qp *qp)
{
	enum { SIGNALS = 200, POLLS = 1000 };
	struct ibv_wc wc;

	got = 0;
	for (int i = 0; i < SIGNALS; i++) {
		CHECK(!kill(getpid(), SIGURG));
		for (int n = 0; n < POLLS; n++)
			CHECK(ibv_poll_cq(qp->send_cq, 1, &wc) == 0);
		for (int n = 0; got <= i && n < 1000; n++)
			usleep(1000);
		CHECK(got == i + 1);
	}
}

int main(int argc, char **argv)
{
	int before = argc < 2;
	struct ibv_qp *qp;

	if (before)
		install(0);
	qp = make_qp();
	if (!before) {
		install(SA_ONSTACK);
		take(qp);
		qp = make_qp(); // which looks for handlers
	}
	take(qp);
	pid_t child = fork();
	if (!child) {
		take(make_qp());
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

// A program that blocks signals after it has opened a device, and takes them with sigtimedwait, gets each of them.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "device.h"

static const int signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGPIPE, SIGIO, SIGURG};

enum { COUNT = sizeof signals / sizeof *signals };

static void take(void)
{
	const struct timespec limit = {.tv_sec = 20};
	struct ibv_context *c = open_device("vrb_lo");
	sigset_t set, before;

	CHECK(c);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	CHECK(pd && cq && ibv_create_qp(pd, &init)); // the threads of the device run

	CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &before) && !sigismember(&before, SIGTERM));
	sigemptyset(&set);
	for (int i = 0; i < COUNT; i++)
		sigaddset(&set, signals[i]);
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	for (int i = 0; i < 100 * COUNT; i++) {
		CHECK(!kill(getpid(), signals[i % COUNT]));
		CHECK(sigtimedwait(&set, NULL, &limit) == signals[i % COUNT]);
	}
}

int main(void)
{
	take();
	pid_t child = fork(); // has an engine of its own
	if (!child) {
		sigset_t none;

		sigemptyset(&none);
		CHECK(!pthread_sigmask(SIG_SETMASK, &none, NULL));
		take();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

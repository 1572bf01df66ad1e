// A handler of a signal, which has interrupted the engine, forks a child that ends by pthread_exit: its thread must not
// enter the runtime of the parent.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"
#include "device.h"

static volatile pid_t child;

static void handle(int sig)
{
	child = fork();
	if (!child)
		pthread_exit(NULL);
}

int main(void)
{
	struct ibv_context *c = open_device("vrb_lo");
	struct ibv_cq *cq;
	struct ibv_wc wc;
	int status;

	CHECK(c && signal(SIGALRM, handle) != SIG_ERR); // before the CQ, which makes it one for threads in the engine
	CHECK(cq = ibv_create_cq(c, 16, NULL, NULL, 0));
	for (int i = 0; i < 10; i++) {
		child = 0;
		ualarm(1000 + i * 137, 0);
		while (!child)
			CHECK(!ibv_poll_cq(cq, 1, &wc));
		CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	}
	return 0;
}

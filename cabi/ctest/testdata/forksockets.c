// A process forks while a thread of it opens and closes devices. No child has a socket of the port: it would keep the
// child, and others after the end of the parent, from opening a device.
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "device.h"

#include "check.h"

enum { FORKS = 200, PORT = 4791 };

static atomic_int opened, over;

static void *open_and_close(void *arg)
{
	struct ibv_qp_init_attr in = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};

	while (!over) {
		struct ibv_context *c = open_device("lone");
		CHECK(c);
		struct ibv_pd *pd = ibv_alloc_pd(c);
		CHECK(in.send_cq = in.recv_cq = ibv_create_cq(c, 4, NULL, NULL, 0));
		struct ibv_qp *qp = ibv_create_qp(pd, &in);
		CHECK(qp && !ibv_destroy_qp(qp) && !ibv_destroy_cq(in.send_cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(c));
		opened++;
	}
	return NULL;
}

// sockets returns how many descriptors are sockets of the port.
static int sockets(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		struct sockaddr_in6 a = {0};
		socklen_t len = sizeof a;
		if (!getsockname(atoi(e->d_name), (struct sockaddr *)&a, &len) &&
		    (a.sin6_family == AF_INET || a.sin6_family == AF_INET6) && a.sin6_port == htons(PORT))
			n++;
	}
	closedir(d);
	return n;
}

int main(void)
{
	pthread_t t;
	int bad = 0, status;

	CHECK(!pthread_create(&t, NULL, open_and_close, NULL));
	for (int i = 0; i < FORKS || opened < 2; i++) {
		pid_t child = fork();
		if (!child)
			_exit(sockets() ? 3 : 0);
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		bad += status != 0;
	}
	over = 1;
	pthread_join(t, NULL);
	if (bad)
		fprintf(stderr, "%d children of %d have sockets of the port\n", bad, FORKS);
	return bad != 0;
}

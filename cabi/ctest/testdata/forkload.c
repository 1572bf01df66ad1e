// A process forks while a thread of it loads the engine. The child uses devices.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

static void *list(void *arg)
{
	CHECK(ibv_get_device_list(NULL));
	return NULL;
}

static void join(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void fork_after(int us)
{
	pthread_t t;

	alarm(20); // also if the locks hang
	CHECK(!pthread_create(&t, NULL, list, NULL));
	usleep(us);
	pid_t child = fork();
	if (!child) {
		alarm(20);
		list(NULL);
		_exit(0);
	}
	join(child);
	pthread_join(t, NULL);
}

int main(void)
{
	for (int us = 0; us < 6000; us += 300) { // loading takes a few milliseconds
		pid_t pid = fork();
		if (!pid) {
			fork_after(us);
			_exit(0);
		}
		join(pid);
	}
	return 0;
}

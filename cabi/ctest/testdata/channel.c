// A thread that waits for the events of a channel that is destroyed goes on waiting, as in the kernel. rping destroys
// its channel while a thread waits, and fails if that thread's call returns.
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { USER = 18 };

// Not in the installed header.
int rdma_write_cm_event(struct rdma_cm_id *, enum rdma_cm_event_type, int status, uint64_t arg);

static int failed;

struct waiter {
	struct rdma_event_channel *ch;
	volatile pid_t tid;
};

static void *wait_for_event(void *arg)
{
	struct waiter *w = arg;
	struct rdma_cm_event *ev;

	w->tid = syscall(SYS_gettid);
	if (!rdma_get_cm_event(w->ch, &ev)) {
		rdma_ack_cm_event(ev);
	} else {
		perror("rdma_get_cm_event");
		failed = 1;
	}
	return NULL;
}

// reads reports whether a thread is in a system call whose first argument is a descriptor.
static int reads(pid_t tid, int fd)
{
	char name[64];
	unsigned long arg = 0;
	long number = -1;

	snprintf(name, sizeof name, "/proc/self/task/%d/syscall", tid);
	FILE *f = fopen(name, "r");
	if (!f || fscanf(f, "%ld 0x%lx", &number, &arg) != 2)
		number = -1;
	if (f)
		fclose(f);
	return number == SYS_read && arg == (unsigned long)fd;
}

int main(void)
{
	for (int i = 0; i < 200; i++) {
		struct waiter *w = calloc(1, sizeof *w);
		struct rdma_cm_id *id;
		pthread_t t;
		int tries = 0;

		CHECK(w && (w->ch = rdma_create_event_channel()));
		CHECK(!rdma_create_id(w->ch, &id, NULL, RDMA_PS_TCP));
		CHECK(!pthread_create(&t, NULL, wait_for_event, w));
		while (!reads(w->tid, w->ch->fd)) {
			if (++tries > 10000) {
				puts("SKIP: the system does not show where a thread waits");
				return 0;
			}
			usleep(100);
		}
		// The thread takes the event, or finds that it is gone.
		CHECK(!rdma_write_cm_event(id, USER, 0, 7));
		CHECK(!rdma_destroy_id(id));
		rdma_destroy_event_channel(w->ch);
	}
	usleep(100000); // so that threads fail
	return failed;
}

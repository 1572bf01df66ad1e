// What fork needs: a child must not keep the connections of its parent open. Peers notice that a process has ended when
// its sockets close, and the child has them too.
#include <pthread.h>
#include <unistd.h>

#include "lib.h"

enum { MAX_FDS = 1 << 16 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // held from before the fork until after it
static int *fds;
static int count;

// before_fork asks for the descriptors in the parent: the child cannot enter the engine.
static void before_fork(void)
{
	const struct vrb_engine *engine = vb_loaded();

	pthread_mutex_lock(&mu);
	count = 0;
	if (!engine)
		return;
	if (!fds)
		fds = malloc(MAX_FDS * sizeof *fds);
	if (fds)
		count = engine->descriptors(fds, MAX_FDS);
}

static void in_parent(void) { pthread_mutex_unlock(&mu); }

static void in_child(void)
{
	vb_forget();
	for (int i = 0; i < count; i++)
		close(fds[i]);
	count = 0;
	pthread_mutex_init(&mu, NULL);
}

void vb_watch_forks(void)
{
	static int hooked;

	if (!hooked)
		pthread_atfork(before_fork, in_parent, in_child);
	hooked = 1;
}

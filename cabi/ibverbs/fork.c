// What fork needs: a child must not keep the connections of its parent open. Peers notice that a process has ended when
// its sockets close, and the child has them too.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib.h"

enum { MAX_FDS = 1 << 16 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // held from before the fork until after it
static struct vrb_descriptor *fds;
static int count;

// before_fork asks for the descriptors in the parent: the child cannot enter the engine.
static void before_fork(void)
{
	pthread_mutex_lock(&mu);
	vb_hold_load(1);
	vb_hold_devices(1);
	const struct vrb_engine *engine = vb_loaded();
	count = 0;
	if (!engine)
		return;
	if (!fds)
		fds = malloc(MAX_FDS * sizeof *fds);
	if (fds)
		count = engine->descriptors(fds, MAX_FDS);
}

static void release(void)
{
	vb_hold_devices(0);
	vb_hold_load(0);
	pthread_mutex_unlock(&mu);
}

static void in_child(void)
{
	vb_forget();
	for (int i = 0; i < count; i++) {
		struct stat st;
		// Another thread may have closed a descriptor before the fork, and the program may have got its number.
		if (!fstat(fds[i].fd, &st) && st.st_dev == fds[i].dev && st.st_ino == fds[i].ino)
			close(fds[i].fd);
	}
	count = 0;
	release();
}

// watch runs before the program: a thread may fork while the first one loads the engine.
__attribute__((constructor)) static void watch(void) { pthread_atfork(before_fork, release, in_child); }

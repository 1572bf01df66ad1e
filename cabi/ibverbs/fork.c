// What fork needs: a child must not keep the connections of its parent open. Peers notice that a process has ended when
// its sockets close, and the child has them too.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib.h"

enum { MAX_FDS = 1 << 16 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // held from before the fork until after it
static struct vrb_descriptor *fds;
static int count;

// hold_openings keeps the engine from opening descriptors until the fork: they would not be in the list, and the child
// would keep them. It waits until the engine has opened those that it is opening, but not for ever: the thread may run a
// handler that has interrupted the engine meanwhile.
static void hold_openings(int most_ms)
{
	const struct timespec pause = {0, 100000};

	__atomic_store_n(&vb_gate->forking, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 10 * most_ms && __atomic_load_n(&vb_gate->opening, __ATOMIC_SEQ_CST); i++)
		nanosleep(&pause, NULL);
}

static void *ask(void *engine)
{
	count = ((const struct vrb_engine *)engine)->descriptors(fds, MAX_FDS);
	return NULL;
}

// ask_by_thread is ask for a thread that may be in the engine itself, which it cannot enter again. It has no answer if
// the thread keeps the engine from working: peers hear of the parent's end only when the child ends, then.
static void ask_by_thread(const struct vrb_engine *engine)
{
	enum { LIMIT_S = 2 };
	sigset_t every, before;
	struct timespec end;
	pthread_t thread;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	int e = pthread_create(&thread, NULL, ask, (void *)engine);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e)
		return;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += LIMIT_S;
	if (!pthread_timedjoin_np(thread, NULL, &end))
		return;
	pthread_detach(thread);
	fds = NULL; // the thread may write it yet
	count = 0;
}

// in_handler reports whether the thread runs a handler of a signal: these have the alternate stack.
static int in_handler(void)
{
	stack_t s;

	return !sigaltstack(NULL, &s) && (s.ss_flags & SS_ONSTACK);
}

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
	int handler = in_handler();
	if (!fds)
		return;
	hold_openings(handler ? 20 : 2000);
	if (handler)
		ask_by_thread(engine);
	else
		ask((void *)engine);
}

static void release(void)
{
	if (vb_gate)
		__atomic_store_n(&vb_gate->forking, 0, __ATOMIC_SEQ_CST);
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

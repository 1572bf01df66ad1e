// Cancellation of threads. A thread that is cancelled in the engine, or while it holds a lock, leaves it unusable. So
// calls on rsockets hold the cancellation back, and are cancellation points where those of the C library are.
//
// pthread_cancel does not end a wait in the engine: ours does, by the eventfd of the thread.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/eventfd.h>

#include "sockets.h"

// thread is one that has waited, or was about to.
struct thread {
	struct thread *next; // in all
	pthread_t id;
	int event;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // guards all
static struct thread *all;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// Handlers of signals use them, so they are in the static TLS block.
#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
OF_THREAD struct thread *self;
OF_THREAD int depth;     // guards inside each other
OF_THREAD int before;    // the state of the program
OF_THREAD int cancelled; // a wait has ended for that

static void leave(void *arg)
{
	struct thread *t = arg, **at = &all;

	pthread_mutex_lock(&mu);
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	pthread_mutex_unlock(&mu);
	NEXT(close)(t->event);
	free(t);
	self = NULL;
}

static void make_key(void) { pthread_key_create(&at_exit, leave); }

// after_fork runs in the child: events of the child must not end waits of the parent, and its other threads are gone.
static void after_fork(void)
{
	pthread_mutex_init(&mu, NULL);
	while (all) {
		struct thread *t = all;
		all = t->next;
		NEXT(close)(t->event);
		free(t);
	}
	if (self)
		pthread_setspecific(at_exit, NULL);
	self = NULL;
}

__attribute__((constructor)) static void watch(void) { pthread_atfork(NULL, NULL, after_fork); }

int event_of_thread(void)
{
	if (self)
		return self->event;
	pthread_once(&once, make_key);
	struct thread *t = malloc(sizeof *t);
	if (!t)
		return fail(ENOMEM);
	*t = (struct thread){.id = pthread_self(), .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (t->event < 0) {
		free(t);
		return -1;
	}
	pthread_mutex_lock(&mu);
	t->next = all;
	all = t;
	pthread_mutex_unlock(&mu);
	pthread_setspecific(at_exit, t);
	self = t;
	return t->event;
}

// give_back gives a thread its state back, which may cancel it; if point is set, also one of deferred cancellation.
static void give_back(int state, int point)
{
	int type;

	// A thread of asynchronous cancellation that glibc 2.36 cancels in pthread_setcancelstate has no PTHREAD_CANCELED.
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	pthread_setcancelstate(state, NULL);
	if (point || type == PTHREAD_CANCEL_ASYNCHRONOUS)
		pthread_testcancel();
	pthread_setcanceltype(type, NULL);
}

int guard_begin(int point)
{
	int e = errno;

	// A cancellation before the thread has its event is found here, a later one ends the wait.
	if (point && !depth) {
		int state;
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		event_of_thread();
		give_back(state, 1);
	}
	if (!depth)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	depth++;
	errno = e;
	return 0;
}

void guard_end(int *unused)
{
	int now = cancelled;

	if (--depth)
		return;
	cancelled = 0;
	give_back(before, now);
}

int cancels_wait(void) { return depth && before == PTHREAD_CANCEL_ENABLE ? (cancelled = 1) : 0; }

int pthread_cancel(pthread_t id)
{
	int e = NEXT(pthread_cancel)(id);

	GUARD(0);
	pthread_mutex_lock(&mu);
	for (struct thread *t = all; t; t = t->next)
		if (pthread_equal(t->id, id))
			eventfd_write(t->event, 1);
	pthread_mutex_unlock(&mu);
	return e;
}

// Cancellation of threads. A thread that is cancelled in the engine, or while it holds a lock, leaves it unusable. So
// calls on rsockets hold the cancellation back, and are cancellation points where those of the C library are.
//
// glibc 2.36 sends a signal to a thread of asynchronous cancellation, whose handler looks at the type of the thread and
// not at its state. So a call makes the type deferred too. It takes a signal on its way before it enters the engine, where
// a handler would have a small stack.
//
// pthread_cancel does not end a wait in the engine: ours does, by the eventfd of the thread.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sockets.h"

// thread is one that has waited, or was about to.
struct thread {
	struct thread *next; // in all
	pthread_t id;
	int event;
	void *stack; // for handlers
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // guards all, and is held while a thread is cancelled; see lock
static struct thread *all;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// Handlers of signals use them, so they are in the static TLS block.
#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
OF_THREAD struct thread *self;
OF_THREAD int depth;     // guards inside each other
OF_THREAD int before;    // the state of the program
OF_THREAD int type;      // the type of the program
OF_THREAD int cancelled; // a wait has ended for that

// lock takes mu, and blocks signals, whose handlers may need it.
static void lock(sigset_t *mask)
{
	sigset_t every;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, mask);
	pthread_mutex_lock(&mu);
}

static void unlock(const sigset_t *mask)
{
	pthread_mutex_unlock(&mu);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

static void leave(void *arg)
{
	struct thread *t = arg, **at = &all;
	sigset_t mask;

	lock(&mask);
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	unlock(&mask);
	NEXT(close)(t->event);
	stack_end(t->stack);
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
	sigset_t mask;

	if (self)
		return self->event;
	pthread_once(&once, make_key);
	struct thread *t = malloc(sizeof *t);
	if (!t)
		return fail(ENOMEM);
	*t = (struct thread){.id = pthread_self(), .event = raise_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
	if (t->event < 0) {
		free(t);
		return -1;
	}
	t->stack = stack_new();
	lock(&mask);
	t->next = all;
	all = t;
	unlock(&mask);
	pthread_setspecific(at_exit, t);
	self = t;
	return t->event;
}

// begin holds the cancellation of this thread back. A handler of a signal whose call comes between restores what it finds.
static void begin(void)
{
	int state, kind;
	sigset_t mask;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &kind);
	depth = 1;
	before = state;
	type = kind;
	if (kind == PTHREAD_CANCEL_DEFERRED)
		return;
	lock(&mask); // a thread that cancels this one has sent the signal when it releases mu
	unlock(&mask);
	syscall(SYS_gettid); // at its end the kernel delivers the signal
}

// end gives this thread its state and type back, which may cancel it; if point is set, also one of deferred cancellation.
static void end(int point)
{
	int state = before, kind = type;

	depth = 0;
	pthread_setcancelstate(state, NULL);
	if (point || kind == PTHREAD_CANCEL_ASYNCHRONOUS)
		pthread_testcancel();
	pthread_setcanceltype(kind, NULL);
}

int guard_begin(int point)
{
	int e = errno;

	if (depth) {
		depth++;
		return 0;
	}
	begin();
	if (point) { // a cancellation before the thread has its event is found here, a later one ends the wait
		event_of_thread();
		end(1);
		begin();
	}
	errno = e;
	return 0;
}

void guard_end(int *unused)
{
	int now = cancelled;

	if (depth > 1) {
		depth--;
		return;
	}
	cancelled = 0;
	end(now);
}

int cancels_wait(void) { return depth && before == PTHREAD_CANCEL_ENABLE ? (cancelled = 1) : 0; }

int pthread_cancel(pthread_t id)
{
	sigset_t mask;

	if (pthread_equal(id, pthread_self())) // it may not return
		return NEXT(pthread_cancel)(id);
	GUARD(0);
	lock(&mask);
	int e = NEXT(pthread_cancel)(id);
	for (struct thread *t = all; t; t = t->next)
		if (pthread_equal(t->id, id))
			eventfd_write(t->event, CANCELS);
	unlock(&mask);
	return e;
}

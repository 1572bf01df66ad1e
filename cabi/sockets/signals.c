// A thread that waits for rsockets is in the engine, where the kernel interrupts nothing. Each handler of the program is
// called by a function of ours, which ends the wait of its thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <ucontext.h>
#include <unistd.h>

#include "sockets.h"

// interrupt is an eventfd while the thread waits. A handler may read it at any time, so it is in the static TLS block.
static __thread int interrupt __attribute__((tls_model("initial-exec"))) = -1;

// handled: the handlers that have written it are of these kinds. RESTARTS: of SA_RESTART.
enum { ENDS = 1, RESTARTS = 2 };
static __thread int handled __attribute__((tls_model("initial-exec")));

// restarts: only handlers with SA_RESTART have ended the last wait.
static __thread int restarts __attribute__((tls_model("initial-exec")));

// ended_too: a handler or a cancellation has ended the last wait, beside an event.
static __thread int ended_too __attribute__((tls_model("initial-exec")));

// outside is where a wait in the engine began; NULL without one. A child that a handler has forked returns there, since
// the engine of its parent does not run in it.
static __thread sigjmp_buf *outside __attribute__((tls_model("initial-exec")));

static struct sigaction handlers[_NSIG];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // held with all signals blocked: handlers may install handlers

// is_function: SIG_DFL and SIG_IGN are so with SA_SIGINFO too, as the engine's runtime sets them before it ends.
static int is_function(const struct sigaction *a) { return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN; }

// engine_at reports whether the engine has an address of code.
static int engine_at(const void *code)
{
	Dl_info at;

	return dladdr(code, &at) && at.dli_fname &&
	       (strstr(at.dli_fname, "libverbena-engine.so") || !strncmp(at.dli_fname, "/proc/self/fd/", 14));
}

// of_engine reports whether a handler is the engine's own, whose signals interrupt nothing. A forked child has loaded
// its engine from a descriptor.
static int of_engine(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) && engine_at((void *)a->sa_sigaction);
}

// leave_engine ends the wait of a thread in a child that a handler has forked.
static void leave_engine(const ucontext_t *interrupted)
{
	sigjmp_buf *to = outside;

	outside = NULL;
	pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
	siglongjmp(*to, 1);
}

static void handle(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *a = &handlers[sig];
	unsigned int forks = parent_forks();
	int e = errno, how = a->sa_flags & SA_RESTART ? RESTARTS : ENDS; // before the handler installs another one

	if (a->sa_flags & SA_SIGINFO)
		a->sa_sigaction(sig, info, context);
	else if (is_function(a))
		a->sa_handler(sig);
	if (outside && parent_forks() != forks)
		leave_engine(context);
	if (interrupt >= 0) {
		handled |= how;
		eventfd_write(interrupt, 1);
	}
	errno = e;
}

// code_of returns where a signal has interrupted a thread; NULL if that is not known.
static void *code_of(const ucontext_t *u)
{
#if defined(__x86_64__)
	return (void *)u->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (void *)u->uc_mcontext.pc;
#else
	return NULL;
#endif
}

// The engine's runtime has a handler of SIGPIPE, with which a write of the program to a pipe without a reader does not
// end the process. broken_pipe takes its place while the program has no handler: only writes of the engine end nothing.
static void broken_pipe(int sig, siginfo_t *info, void *context)
{
	struct sigaction none = {.sa_handler = SIG_DFL};
	void *code = code_of(context);
	int e = errno;

	if (code && !engine_at(code)) {
		NEXT(sigaction)(SIGPIPE, &none, NULL);
		pthread_kill(pthread_self(), SIGPIPE); // at the end of this handler
	}
	errno = e;
}

static int watches_pipes; // the engine's runtime has asked for SIGPIPE; mu guards it

// of_pipes changes what the kernel gets as handler of SIGPIPE. engines: the engine has asked for it.
static void of_pipes(struct sigaction *now, int engines)
{
	const struct sigaction *program = &handlers[SIGPIPE];

	watches_pipes |= engines;
	if (!watches_pipes || is_function(program))
		return;
	*now = *program;
	if (program->sa_handler == SIG_DFL) {
		now->sa_sigaction = broken_pipe;
		now->sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	}
}

int sigaction(int sig, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	struct sigaction now, before;
	sigset_t all, mask;

	if (sig <= 0 || sig >= _NSIG || of_vfork())
		return NEXT(sigaction)(sig, act, old);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	pthread_mutex_lock(&mu);
	before = handlers[sig];
	if (act) {
		int engines = is_function(act) && of_engine(act);

		now = *act;
		if (!engines) // the engine's handler of SIGURG calls that of the program, by handle
			handlers[sig] = *act;
		if (is_function(act) && !engines) {
			now.sa_sigaction = handle;
			now.sa_flags |= SA_SIGINFO | SA_ONSTACK; // a thread in the engine has a small stack
		}
		if (sig == SIGPIPE)
			of_pipes(&now, engines);
	}
	int result = NEXT(sigaction)(sig, act ? &now : NULL, old);
	if (result && act)
		handlers[sig] = before;
	if (!result && old && (old->sa_sigaction == handle || old->sa_sigaction == broken_pipe))
		*old = before;
	pthread_mutex_unlock(&mu);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return result;
}

static sighandler_t set(int sig, sighandler_t h, int flags)
{
	struct sigaction a = {.sa_handler = h, .sa_flags = flags}, old;

	sigemptyset(&a.sa_mask);
	if (h == SIG_ERR)
		return errno = EINVAL, SIG_ERR;
	return sigaction(sig, &a, &old) ? SIG_ERR : old.sa_handler;
}

static atomic_int interrupts[_NSIG]; // by siginterrupt

sighandler_t signal(int sig, sighandler_t h)
{
	return set(sig, h, sig > 0 && sig < _NSIG && atomic_load(&interrupts[sig]) ? 0 : SA_RESTART);
}

#include "../preload/handlers.h"

// siginterrupt of the C library would change the flags of the kernel only.
int siginterrupt(int sig, int yes)
{
	struct sigaction a;

	if (sigaction(sig, NULL, &a))
		return -1;
	atomic_store(&interrupts[sig], !!yes);
	a.sa_flags = yes ? a.sa_flags & ~SA_RESTART : a.sa_flags | SA_RESTART;
	return sigaction(sig, &a, NULL);
}

// after_fork runs in the child, in which no other thread has the lock.
static void after_fork(void)
{
	pthread_mutex_init(&mu, NULL);
	interrupt = -1;
}

// watch notes whether SIGPIPE is ignored.
__attribute__((constructor)) static void watch(void)
{
	struct sigaction now;

	pthread_atfork(NULL, NULL, after_fork);
	if (!NEXT(sigaction)(SIGPIPE, NULL, &now) && !is_function(&now))
		handlers[SIGPIPE] = now;
}

void pipe_signal(void) { pthread_kill(pthread_self(), SIGPIPE); }

// has_number reports whether an rsocket is in a list. rpoll would call our poll without one.
static int has_number(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		struct slot *s = slot_of(fds[i].fd);
		if (s && atomic_load(&s->uses) > 0)
			return 1;
	}
	return 0;
}

int poll_now(struct pollfd *fds, nfds_t n) { return has_number(fds, n) ? rpoll(fds, n, 0) : NEXT(poll)(fds, n, 0); }

// ended returns whether a signal handler or a cancellation has ended a wait, of which fd is the event.
static int ended(int fd)
{
	eventfd_t count = 0;

	eventfd_read(fd, &count);
	int by_handler = handled;
	handled = 0;
	restarts = by_handler == RESTARTS && count < CANCELS;
	return by_handler || cancels_wait();
}

// poll_engine is rpoll. It returns -1 with EINTR in a child that a handler has forked meanwhile.
static int poll_engine(struct pollfd *list, nfds_t n, int timeout_ms)
{
	sigjmp_buf here, *before = outside; // of a wait that a handler has interrupted, in which this one is

	if (sigsetjmp(here, 0)) {
		outside = before;
		return fail(EINTR);
	}
	outside = &here;
	int got = rpoll(list, n, timeout_ms);
	outside = before;
	for (nfds_t i = 0; got > 0 && i < n; i++)
		if ((list[i].revents & POLLERR) && slot_of(list[i].fd))
			parent_tell(list[i].fd);
	return got;
}

// wait_once is wait_for with a list of which the last one is the event of the thread. It returns 0 too early if the
// thread is cancelled and does not want that.
static int wait_once(struct pollfd *list, nfds_t n, int timeout_ms)
{
	int before = interrupt;

	interrupt = list[n].fd;
	ended_too = restarts = 0;
	int got = has_number(list, n) ? poll_engine(list, n + 1, timeout_ms) : NEXT(poll)(list, n + 1, timeout_ms);
	int forked = interrupt < 0; // a child that a handler has forked does not have the event
	interrupt = forked ? -1 : before;
	if (forked || got == 0 || (got > 0 && !list[n].revents))
		return got;
	if (got < 0) {
		int e = errno;
		if (e == EINTR && handled)
			ended(list[n].fd); // else the event ends the next wait too
		return fail(e);
	}
	int e = ended(list[n].fd);
	ended_too = e && got > 1;
	return got > 1 ? got - 1 : e ? fail(EINTR) : 0;
}

int restarted(void) { return errno == EINTR && restarts; }

int interrupted(void) { return ended_too ? fail(EINTR) : 0; }

int wait_for(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct pollfd few[16], *list = few;
	int64_t end = now_ms() + timeout_ms;
	int got, fd = event_of_thread(), left = timeout_ms;

	if (fd < 0)
		return -1;
	if (n + 1 > sizeof few / sizeof *few && !(list = malloc((n + 1) * sizeof *list)))
		return fail(ENOMEM);
	memcpy(list, fds, n * sizeof *list);
	list[n] = (struct pollfd){.fd = fd, .events = POLLIN};
	while (!(got = wait_once(list, n, left)) && left) {
		if (left > 0 && (left = (int)(end - now_ms())) <= 0)
			break;
	}
	int e = errno;
	if (got >= 0)
		for (nfds_t i = 0; i < n; i++)
			fds[i].revents = list[i].revents;
	if (list != few)
		free(list);
	errno = e;
	return got;
}

int mask_begin(const sigset_t *mask, struct masked *m)
{
	*m = (struct masked){.event = mask ? event_of_thread() : -1, .interrupt = interrupt};
	if (!mask)
		return 0;
	if (m->event < 0)
		return -1;
	interrupt = m->event; // before a handler of a signal that was blocked runs
	pthread_sigmask(SIG_SETMASK, mask, &m->before);
	return 0;
}

void mask_end(const struct masked *m)
{
	eventfd_t count;
	int e = errno;

	if (m->event < 0)
		return;
	pthread_sigmask(SIG_SETMASK, &m->before, NULL);
	if (interrupt >= 0 && m->interrupt < 0 && handled) { // after the wait: it does not end the next one
		eventfd_read(m->event, &count);
		handled = 0;
	}
	interrupt = interrupt < 0 ? -1 : m->interrupt;
	errno = e;
}

int ready(int rs, short event, int ms)
{
	struct pollfd p = {.fd = rs, .events = event};
	int n, before = errno;

	do
		n = wait_for(&p, 1, ms > 0 ? ms : -1);
	while (n < 0 && ms <= 0 && restarted());
	if (n > 0)
		errno = before;
	return n > 0 ? 0 : n == 0 ? fail(EAGAIN) : -1;
}

// Signal handlers get SA_ONSTACK: a thread that is in the engine has a small stack, on which the kernel would put the
// frame of a handler. Threads that have not been in the engine have no alternate stack, and the flag has no effect.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>

static int is_function(sighandler_t h) { return h != SIG_DFL && h != SIG_IGN && h != SIG_ERR; }

int sigaction(int sig, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	struct sigaction on;

	if (!next)
		next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
	if (!next) {
		errno = ENOSYS;
		return -1;
	}
	if (act && is_function(act->sa_handler)) {
		on = *act;
		on.sa_flags |= SA_ONSTACK;
		act = &on;
	}
	return next(sig, act, old);
}

static sighandler_t set(int sig, sighandler_t h, int flags)
{
	struct sigaction a = {.sa_handler = h, .sa_flags = flags}, old;

	sigemptyset(&a.sa_mask);
	if (!(flags & SA_NODEFER))
		sigaddset(&a.sa_mask, sig);
	return h == SIG_ERR ? (errno = EINVAL, SIG_ERR) : sigaction(sig, &a, &old) ? SIG_ERR : old.sa_handler;
}

static volatile sig_atomic_t interrupts[_NSIG]; // by siginterrupt

sighandler_t signal(int sig, sighandler_t h)
{
	return set(sig, h, sig > 0 && sig < _NSIG && interrupts[sig] ? 0 : SA_RESTART);
}

#include "handlers.h"

// siginterrupt notes what the C library notes for its own signal.
int siginterrupt(int sig, int yes)
{
	int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "siginterrupt");
	int result = next ? next(sig, yes) : (errno = ENOSYS, -1);

	if (!result)
		interrupts[sig] = !!yes;
	return result;
}

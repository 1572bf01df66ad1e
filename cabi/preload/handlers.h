// Functions of the C library that install a handler and call its own sigaction inside, where a preloaded one is not
// seen. The file that includes this defines sigaction, signal and set.
#ifndef VERBENA_HANDLERS_H
#define VERBENA_HANDLERS_H

#include <errno.h>
#include <signal.h>
#include <stddef.h>

sighandler_t bsd_signal(int sig, sighandler_t h) { return signal(sig, h); }
sighandler_t ssignal(int sig, sighandler_t h) { return signal(sig, h); }
sighandler_t sysv_signal(int sig, sighandler_t h) { return set(sig, h, SA_RESETHAND | SA_NODEFER); }
sighandler_t __sysv_signal(int sig, sighandler_t h) { return set(sig, h, SA_RESETHAND | SA_NODEFER); }

sighandler_t sigset(int sig, sighandler_t h)
{
	struct sigaction a = {.sa_handler = h}, old;
	sigset_t one, before;

	sigemptyset(&one);
	if (h == SIG_ERR)
		return errno = EINVAL, SIG_ERR;
	if (sigaddset(&one, sig) || sigaction(sig, h == SIG_HOLD ? NULL : &a, &old))
		return SIG_ERR;
	pthread_sigmask(h == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &before);
	return sigismember(&before, sig) ? SIG_HOLD : old.sa_handler;
}

#endif

// Signal handlers of the program. A thread that is in the engine has a small stack, on which the kernel would put the
// frame of a handler: it overwrites other memory. So each handler gets SA_ONSTACK; each thread that has been in the
// engine has an alternate stack. The preloaded library does that in sigaction and signal. Here it is done for the
// handlers that are installed already, for programs that run without it: by calls that make or change objects, which
// programs do between installing their handlers and the first message.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "lib.h"

// errno stays as it is: glibc refuses its own two signals, but the call of the program has not failed.
void vb_signals(void)
{
	int before = errno;

	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction a;

		if (sigaction(sig, NULL, &a) || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN ||
		    a.sa_flags & SA_ONSTACK)
			continue;
		a.sa_flags |= SA_ONSTACK;
		sigaction(sig, &a, NULL);
	}
	vb_urgent_again();
	errno = before;
}

// By SIGURG the engine interrupts a thread of its own that a peer lets wait in the close of a socket (package
// untrusted). Go's runtime would use it to take turns among its goroutines: the engine is built without that, since
// calls of the program in C would end with EINTR. The runtime replaces the handler of the program when it starts, and
// passes no signal on to it. The functions below call both handlers.

static struct sigaction of_program, of_engine;

static int is_function(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

// next_sigaction is that of the C library: the one of a preloaded library would take the engine's signals for those of
// the program.
static int next_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	int (*next)(int, const struct sigaction *, struct sigaction *) =
		(int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");

	return next ? next(sig, act, old) : -1;
}

// urgent is the handler. A signal that a thread of this process has sent to a thread may be of either kind.
static void urgent(int sig, siginfo_t *info, void *context)
{
	int e = errno;

	if (info->si_code == SI_TKILL && info->si_pid == getpid())
		of_engine.sa_sigaction(sig, info, context);
	if (of_program.sa_flags & SA_SIGINFO)
		of_program.sa_sigaction(sig, info, context);
	else if (is_function(&of_program))
		of_program.sa_handler(sig);
	errno = e;
}

// call_both installs the handler, with the flags of the program's.
static void call_both(void)
{
	struct sigaction both = of_engine;

	both.sa_sigaction = urgent;
	if (is_function(&of_program) && !(of_program.sa_flags & SA_RESTART))
		both.sa_flags &= ~SA_RESTART;
	next_sigaction(SIGURG, &both, NULL);
}

// vb_urgent_begin is called before the engine is loaded, and vb_urgent_end when its runtime has started.
void vb_urgent_begin(void)
{
	struct sigaction now;

	if (!next_sigaction(SIGURG, NULL, &now) && now.sa_sigaction != urgent)
		of_program = now;
}

void vb_urgent_end(void)
{
	struct sigaction now;

	if (next_sigaction(SIGURG, NULL, &now) || !(now.sa_flags & SA_SIGINFO) || now.sa_sigaction == urgent)
		return;
	of_engine = now;
	if (is_function(&of_program))
		call_both();
}

// vb_urgent_again is for a program that has installed another handler since, or ignores the signal.
void vb_urgent_again(void)
{
	struct sigaction now;

	if (!vb_loaded() || !is_function(&of_engine) || next_sigaction(SIGURG, NULL, &now) ||
	    now.sa_sigaction == urgent || now.sa_sigaction == of_engine.sa_sigaction)
		return;
	of_program = now;
	call_both();
}

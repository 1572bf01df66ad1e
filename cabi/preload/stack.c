// Go asks for the bounds of the stack when a call into the engine comes from a stack that is not the thread's, such as a
// coroutine's. For the first thread glibc reads /proc/self/maps then, which takes up to a millisecond. Its stack stays
// where it is, so the engine gets what it was told first.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

// The stack of the first thread, which alone reads and writes this. After a fork by another thread, that one is the
// first thread of the child.
static pthread_t first;
static void *lowest; // NULL: not known yet
static size_t size;

// from_engine reports whether code is the engine's. The engine asks at one place.
static int from_engine(void *code)
{
	static _Atomic(void *) known;
	Dl_info at;

	if (atomic_load(&known) == code)
		return 1;
	if (!dladdr(code, &at) || !at.dli_fname || !strstr(at.dli_fname, "libverbena-engine.so"))
		return 0;
	atomic_store(&known, code);
	return 1;
}

int pthread_getattr_np(pthread_t thread, pthread_attr_t *a)
{
	static _Atomic(int (*)(pthread_t, pthread_attr_t *)) known_next;
	int (*next)(pthread_t, pthread_attr_t *) = atomic_load(&known_next);
	int error;

	if (!next) {
		next = (int (*)(pthread_t, pthread_attr_t *))dlsym(RTLD_NEXT, "pthread_getattr_np");
		atomic_store(&known_next, next);
	}
	if (!next)
		return ENOSYS;
	if (!pthread_equal(thread, pthread_self()) || getpid() != gettid() || !from_engine(__builtin_return_address(0)))
		return next(thread, a);
	if (lowest && pthread_equal(thread, first)) {
		error = pthread_attr_init(a);
		return error ? error : pthread_attr_setstack(a, lowest, size);
	}
	error = next(thread, a);
	first = thread;
	if (error || pthread_attr_getstack(a, &lowest, &size))
		lowest = NULL;
	return error;
}

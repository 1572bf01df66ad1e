// The engine: found beside this library, loaded at first use, and again in a forked child.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib.h"

#define ENGINE "libverbena-engine.so"

const struct vrb_engine *vb_engine;
unsigned int vb_generation = 1;
struct vrb_gate *vb_gate;

static pthread_mutex_t load_mu = PTHREAD_MUTEX_INITIALIZER;
static atomic_int loaded;
static void *library; // of the engine
static void (*forked)(void); // its verbena_forked
static const atomic_int *_Atomic owed; // acknowledgements that the engine holds

const struct vrb_engine *vb_loaded(void)
{
	return atomic_load_explicit(&loaded, memory_order_acquire) ? vb_engine : NULL;
}

// A Go runtime does not survive a fork, so the next call loads another engine.
void vb_forget(void)
{
	if (atomic_load(&loaded)) {
		forked();
		vb_generation++;
		vb_engine = NULL;
		vb_gate = NULL;
		atomic_store(&owed, NULL);
		atomic_store(&loaded, 0);
	}
}

void vb_hold_load(int hold) { (hold ? pthread_mutex_lock : pthread_mutex_unlock)(&load_mu); }

static char path[PATH_MAX]; // of the engine; empty if it is unknown

// find finds the engine, in the folder of this library. It runs before the program, which may change its working
// folder: the loader knows the library by the path of LD_LIBRARY_PATH, which may be relative.
__attribute__((constructor)) static void find(void)
{
	char folder[PATH_MAX], whole[PATH_MAX];
	Dl_info me;

	if (!dladdr((void *)find, &me) || !me.dli_fname)
		return;
	const char *slash = strrchr(me.dli_fname, '/');
	int n = slash ? (int)(slash - me.dli_fname) + 1 : 0;
	if ((size_t)snprintf(folder, sizeof folder, "%.*s.", n, me.dli_fname) >= sizeof folder || !realpath(folder, whole))
		return;
	if ((size_t)snprintf(path, sizeof path, "%s/" ENGINE, whole) >= sizeof path)
		path[0] = 0;
}

// copy returns a descriptor of a copy of a file. The loader takes a file with another inode for another library, so
// that the copy gets a runtime of its own.
static int copy(const char *path)
{
	int in = open(path, O_RDONLY | O_CLOEXEC), out = memfd_create("verbena-engine", MFD_CLOEXEC);
	struct stat st;

	if (in < 0 || out < 0 || fstat(in, &st))
		goto fail;
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = sendfile(out, in, NULL, left);
		if (n <= 0)
			goto fail;
		left -= n;
	}
	close(in);
	return out;
fail:
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return -1;
}

static void *open_copy(const char *path)
{
	char link[32];
	int fd = copy(path);

	if (fd < 0)
		return NULL;
	// The runtime takes its random seed from these 16 bytes, which are the same in all children of a process.
	// Without fresh ones they would choose the same QP numbers and PSNs.
	if (getrandom((void *)getauxval(AT_RANDOM), 16, 0) != 16) {
		close(fd);
		return NULL;
	}
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	void *h = dlopen(link, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	close(fd);
	return h;
}

// pass_environment gives the engine the variables that the program has set since it started.
static void pass_environment(const struct vrb_engine *engine)
{
	static const char *const prefixes[] = {"VERBENA_", "RDMAV_", "IBV_"};
	extern char **environ;

	for (char **e = environ; e && *e; e++) {
		for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
			char name[128], *is = strchr(*e, '=');
			if (strncmp(*e, prefixes[i], strlen(prefixes[i])) || !is || (size_t)(is - *e) >= sizeof name)
				continue;
			snprintf(name, sizeof name, "%.*s", (int)(is - *e), *e);
			engine->set_env(name, is + 1);
		}
	}
}

// open_engine blocks all signals while the runtime starts. Its threads inherit that, so that signals come to the threads
// of the program: one that blocks signals, to take them with sigwait or signalfd, would lose them to the engine's
// threads, or end by them. The runtime unblocks SIGCHLD, SIGPROF and those of faults.
static void *open_engine(const char *path)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	void *h = vb_generation > 1 ? open_copy(path) : dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return h;
}

// has_room reports whether the address space has room for the engine's runtime, which ends the process without it:
// servers such as vsftpd limit it (RLIMIT_AS). It reserves 0.6 GiB, and heap and stacks come to it.
static int has_room(void)
{
	enum { NEEDED = 1 << 30 };
	void *at = mmap(NULL, NEEDED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at != MAP_FAILED) {
		munmap(at, NEEDED);
		return 1;
	}
	if (getenv("VERBENA_EXPLAIN"))
		fprintf(stderr, "verbena: load the engine: it needs 1 GiB of address space: raise ulimit -v (ENOMEM)\n");
	return 0;
}

// fill_low opens those of the descriptors 0 to 2 that are closed. The engine would get these numbers, and what the
// program prints would go into its files. No data goes through the descriptors of O_PATH: reads and writes fail with
// EBADF, as before. They stay open, since the engine opens files at any time.
static void fill_low(void)
{
	for (int fd; (fd = open("/", O_PATH | O_CLOEXEC)) >= 0;) {
		if (fd > 2) {
			close(fd);
			return;
		}
	}
}

static const struct vrb_engine *load(void)
{
	typedef const struct vrb_engine *(*entry)(uint32_t);

	if (!path[0]) {
		fprintf(stderr, "verbena: the folder of libibverbs.so.1 is unknown\n");
		return NULL;
	}
	fill_low();
	vb_urgent_begin();
	void *h = open_engine(path);
	if (!h) {
		const char *why = dlerror();
		fprintf(stderr, "verbena: load the engine: %s; it must be in the folder of libibverbs.so.1: make cabi\n",
			why ? why : strerror(errno));
		return NULL;
	}
	entry get = (entry)dlsym(h, "verbena_engine");
	const struct vrb_engine *engine = get ? get(VERBENA_ENGINE_ABI) : NULL;
	forked = (void (*)(void))dlsym(h, "verbena_forked");
	if (!engine || !forked || engine->size != sizeof *engine) {
		fprintf(stderr, "verbena: %s is of another version than libibverbs.so.1: make cabi\n", path);
		return NULL;
	}
	vb_urgent_end();
	engine->set_generation(vb_generation);
	pass_environment(engine);
	library = h;
	vb_gate = (struct vrb_gate *)engine->gate();
	atomic_store(&owed, (const atomic_int *)engine->owed());
	return engine;
}

// leave waits until the engine has sent the acknowledgements that it holds. A thread of the engine sends them within
// about a millisecond. The program may exit in a handler of a signal that has interrupted the engine, so the engine
// cannot be called here.
__attribute__((destructor)) static void leave(void)
{
	const struct timespec pause = {0, 100000};
	const atomic_int *n = atomic_load(&owed);

	for (int i = 0; n && atomic_load(n) > 0 && i < 1000; i++)
		nanosleep(&pause, NULL);
}

// vb_load leaves errno as it was, as it is for calls that succeed.
int vb_load(void)
{
	int e = 0, before = errno;

	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&load_mu);
	if (!atomic_load(&loaded) && !has_room()) {
		e = ENOMEM;
	} else if (!atomic_load(&loaded)) {
		vb_engine = load();
		if (vb_engine)
			atomic_store_explicit(&loaded, 1, memory_order_release);
		else
			e = ENOSYS;
	}
	pthread_mutex_unlock(&load_mu);
	errno = before;
	return e;
}

// verbena_table is for librdmacm.so.1 and libibumad.so.3, which use the same engine: it returns a table of the engine,
// which it loads if need be, and where the number of the generation stands. NULL with errno set on failure.
const void *verbena_table(const char *name, uint32_t abi, const unsigned int **generation)
{
	int e = vb_load();

	if (e)
		VB_FAIL(e, NULL);
	const void *(*get)(uint32_t) = (const void *(*)(uint32_t))dlsym(library, name);
	const void *table = get ? get(abi) : NULL;
	if (!table)
		VB_FAIL(ENOSYS, NULL);
	*generation = &vb_generation;
	return table;
}

// libverbena-sysfs.so: the files that programs read beside libibverbs. It is preloaded by "verbena run" and sends paths
// below /sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband to the tree that VERBENA_SYSFS names.
// Other paths, and all paths if the variable is not set, are left alone.
//
// Calls inside the C library (glob, nftw) are not seen, nor are paths that lead to the tree from a folder outside.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload.h"

#undef _FORTIFY_SOURCE

// below reports whether path is folder or below it.
static int below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && (path[n] == '/' || path[n] == 0);
}

// place returns path, or where it lies in the tree, which is written to room.
static const char *place(const char *path, char *room)
{
	const char *root, *rest = NULL;

	if (!path || path[0] != '/')
		return path;
	if (below(path, "/sys/class/infiniband") || below(path, "/sys/class/infiniband_verbs"))
		rest = path + strlen("/sys");
	else if (below(path, "/dev/infiniband"))
		rest = path;
	if (!rest || !(root = secure_getenv("VERBENA_SYSFS")) || root[0] != '/')
		return path;
	int n = snprintf(room, PATH_MAX, "%s%s", root, rest);
	return n > 0 && n < PATH_MAX ? room : path;
}

// next_definition returns the C library's function.
static void *next_definition(void **cache, const char *name)
{
	void *f = __atomic_load_n(cache, __ATOMIC_RELAXED);

	if (!f) {
		f = dlsym(RTLD_NEXT, name);
		if (!f) {
			fprintf(stderr, "verbena: the C library has no function %s; verbena run --no-preload\n", name);
			abort();
		}
		__atomic_store_n(cache, f, __ATOMIC_RELAXED);
	}
	return f;
}

FILE *open_next(const char *path, const char *mode)
{
	static void *cache;

	return ((FILE * (*)(const char *, const char *)) next_definition(&cache, "fopen"))(path, mode);
}

// THROUGH defines a function that places its argument named path and calls the C library's.
#define THROUGH(type, name, parameters, arguments)                                                                     \
	type name parameters;                                                                                          \
	type name parameters                                                                                           \
	{                                                                                                              \
		static void *cache;                                                                                    \
		char room[PATH_MAX];                                                                                   \
		path = place(path, room);                                                                              \
		return ((type(*) parameters)next_definition(&cache, #name)) arguments;                                 \
	}

// OPENED ends functions that open a descriptor. dir is the folder of relative paths.
#define OPENED(name, dir, parameters, arguments)                                                                       \
	static void *cache;                                                                                            \
	char room[PATH_MAX];                                                                                           \
	path = place(path, room);                                                                                      \
	int fd = open_counter(dir, path, flags);                                                                       \
	return fd >= 0 ? fd : ((int(*) parameters)next_definition(&cache, #name)) arguments

// OPEN is for functions with an optional mode, OPEN_2 for those without.
#define OPEN(name, dir, parameters, arguments)                                                                         \
	int name parameters;                                                                                           \
	int name parameters                                                                                            \
	{                                                                                                              \
		mode_t mode = 0;                                                                                       \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                             \
			va_list rest;                                                                                  \
			va_start(rest, flags);                                                                         \
			mode = va_arg(rest, mode_t);                                                                   \
			va_end(rest);                                                                                  \
		}                                                                                                      \
		OPENED(name, dir, parameters, arguments);                                                              \
	}

#define OPEN_2(name, dir, parameters, arguments)                                                                       \
	int name parameters;                                                                                           \
	int name parameters { OPENED(name, dir, parameters, arguments); }

// STREAM is THROUGH for functions that open a stream.
#define STREAM(name)                                                                                                   \
	FILE *name(const char *path, const char *mode);                                                                \
	FILE *name(const char *path, const char *mode)                                                                 \
	{                                                                                                              \
		static void *cache;                                                                                    \
		char room[PATH_MAX];                                                                                   \
		path = place(path, room);                                                                              \
		int fd = mode[0] == 'r' && !strchr(mode, '+')                                                          \
				 ? open_counter(AT_FDCWD, path, strchr(mode, 'e') ? O_CLOEXEC : 0)                     \
				 : -1;                                                                                 \
		if (fd >= 0)                                                                                           \
			return fdopen(fd, mode);                                                                       \
		return ((FILE * (*)(const char *, const char *)) next_definition(&cache, #name))(path, mode);          \
	}

// READ is a function that reads from a descriptor, at an offset or at its own. The C library's is looked up early: a
// handler of a signal may call it.
#define READ(name, offset, parameters, arguments)                                                                      \
	static void *cache_##name;                                                                                     \
	__attribute__((constructor)) static void find_##name(void) { next_definition(&cache_##name, #name); }          \
	ssize_t name parameters;                                                                                       \
	ssize_t name parameters                                                                                        \
	{                                                                                                              \
		read_counter(fd, offset);                                                                              \
		return ((ssize_t(*) parameters)next_definition(&cache_##name, #name)) arguments;                       \
	}

typedef int (*choose)(const struct dirent *);
typedef int (*order)(const struct dirent **, const struct dirent **);
typedef int (*choose64)(const struct dirent64 *);
typedef int (*order64)(const struct dirent64 **, const struct dirent64 **);

OPEN(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, dir, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPEN(openat64, dir, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPEN_2(__open_2, AT_FDCWD, (const char *path, int flags), (path, flags))
OPEN_2(__open64_2, AT_FDCWD, (const char *path, int flags), (path, flags))
OPEN_2(__openat_2, dir, (int dir, const char *path, int flags), (dir, path, flags))
OPEN_2(__openat64_2, dir, (int dir, const char *path, int flags), (dir, path, flags))
STREAM(fopen)
STREAM(fopen64)
THROUGH(FILE *, freopen, (const char *path, const char *mode, FILE *f), (path, mode, f))
THROUGH(FILE *, freopen64, (const char *path, const char *mode, FILE *f), (path, mode, f))
READ(read, -1, (int fd, void *to, size_t length), (fd, to, length))
READ(__read_chk, -1, (int fd, void *to, size_t length, size_t room), (fd, to, length, room))
READ(pread, offset, (int fd, void *to, size_t length, off_t offset), (fd, to, length, offset))
READ(pread64, offset, (int fd, void *to, size_t length, off64_t offset), (fd, to, length, offset))
THROUGH(DIR *, opendir, (const char *path), (path))
THROUGH(int, scandir, (const char *path, struct dirent ***list, choose c, order o), (path, list, c, o))
THROUGH(int, scandir64, (const char *path, struct dirent64 ***list, choose64 c, order64 o), (path, list, c, o))
THROUGH(int, stat, (const char *path, struct stat *s), (path, s))
THROUGH(int, lstat, (const char *path, struct stat *s), (path, s))
THROUGH(int, stat64, (const char *path, struct stat64 *s), (path, s))
THROUGH(int, lstat64, (const char *path, struct stat64 *s), (path, s))
THROUGH(int, fstatat, (int dir, const char *path, struct stat *s, int flags), (dir, path, s, flags))
THROUGH(int, fstatat64, (int dir, const char *path, struct stat64 *s, int flags), (dir, path, s, flags))
THROUGH(int, statx, (int dir, const char *path, int flags, unsigned mask, struct statx *s), (dir, path, flags, mask, s))
// Programs that were linked with glibc before 2.33 call these for stat.
THROUGH(int, __xstat, (int version, const char *path, struct stat *s), (version, path, s))
THROUGH(int, __lxstat, (int version, const char *path, struct stat *s), (version, path, s))
THROUGH(int, __xstat64, (int version, const char *path, struct stat64 *s), (version, path, s))
THROUGH(int, __lxstat64, (int version, const char *path, struct stat64 *s), (version, path, s))
THROUGH(int, access, (const char *path, int mode), (path, mode))
THROUGH(int, euidaccess, (const char *path, int mode), (path, mode))
THROUGH(int, eaccess, (const char *path, int mode), (path, mode))
THROUGH(int, faccessat, (int dir, const char *path, int mode, int flags), (dir, path, mode, flags))
THROUGH(ssize_t, readlink, (const char *path, char *to, size_t length), (path, to, length))
THROUGH(ssize_t, readlinkat, (int dir, const char *path, char *to, size_t length), (dir, path, to, length))
THROUGH(char *, realpath, (const char *path, char *to), (path, to))
THROUGH(char *, canonicalize_file_name, (const char *path), (path))
THROUGH(char *, __realpath_chk, (const char *path, char *to, size_t length), (path, to, length))
THROUGH(int, chdir, (const char *path), (path))
// ls -l asks for access control lists.
THROUGH(ssize_t, getxattr, (const char *path, const char *name, void *to, size_t length), (path, name, to, length))
THROUGH(ssize_t, lgetxattr, (const char *path, const char *name, void *to, size_t length), (path, name, to, length))

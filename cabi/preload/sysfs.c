// libverbena-sysfs.so: the files that programs read beside libibverbs. It is preloaded by "verbena run" and sends paths
// below /sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband to the tree that VERBENA_SYSFS names.
// Other paths, and all paths if the variable is not set, are left alone.
//
// Descriptor-relative paths and calls inside the C library (glob, nftw) are not seen.
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

// OPEN is THROUGH for functions with an optional mode.
#define OPEN(name, parameters, arguments)                                                                              \
	int name parameters;                                                                                           \
	int name parameters                                                                                            \
	{                                                                                                              \
		static void *cache;                                                                                    \
		char room[PATH_MAX];                                                                                   \
		mode_t mode = 0;                                                                                       \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                             \
			va_list rest;                                                                                  \
			va_start(rest, flags);                                                                         \
			mode = va_arg(rest, mode_t);                                                                   \
			va_end(rest);                                                                                  \
		}                                                                                                      \
		path = place(path, room);                                                                              \
		return ((int(*) parameters)next_definition(&cache, #name)) arguments;                                  \
	}

typedef int (*choose)(const struct dirent *);
typedef int (*order)(const struct dirent **, const struct dirent **);
typedef int (*choose64)(const struct dirent64 *);
typedef int (*order64)(const struct dirent64 **, const struct dirent64 **);

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
THROUGH(int, __open_2, (const char *path, int flags), (path, flags))
THROUGH(int, __open64_2, (const char *path, int flags), (path, flags))
THROUGH(int, __openat_2, (int dir, const char *path, int flags), (dir, path, flags))
THROUGH(int, __openat64_2, (int dir, const char *path, int flags), (dir, path, flags))
THROUGH(FILE *, fopen, (const char *path, const char *mode), (path, mode))
THROUGH(FILE *, fopen64, (const char *path, const char *mode), (path, mode))
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

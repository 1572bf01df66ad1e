// Files of counters. A descriptor of one is a file in memory. It has the values of the time of the last open, read or
// pread at offset 0. They are those of the device of this process; of all programs of this user at the device if this
// process has not opened it, and root's are those of the programs of all users. The processes tell them on their control sockets (package internal/control).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

enum {
	ANSWER = 16384,	    // bytes of an answer
	ASKED = 256,	    // processes that are asked
	SUFFIXES = 8,	    // of processes that have one number
	ANSWER_MS = 200,    // for a process
	DEADLINE_MS = 1000, // for all
	MARKED = 65536,	    // descriptors whose values are renewed
};

struct counter {
	char device[64];
	char file[64]; // "hw_counters/NAME"
};

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// split takes "DEVICE/ports/1/FOLDER/NAME" apart. It reports whether that names a counter.
static int split(const char *path, struct counter *c)
{
	char folder[16], name[48], rest;

	if (sscanf(path, "%63[^/]/ports/1/%15[a-z_]/%47[a-zA-Z0-9_]%c", c->device, folder, name, &rest) != 3)
		return 0;
	if (strcmp(folder, "counters") && strcmp(folder, "hw_counters"))
		return 0;
	snprintf(c->file, sizeof c->file, "%s/%s", folder, name);
	return 1;
}

// folder_of writes the path of a folder. It returns 0 if there is none.
static int folder_of(int dir, char *to, size_t room)
{
	char link[32];
	ssize_t n;

	if (dir == AT_FDCWD)
		snprintf(link, sizeof link, "/proc/self/cwd");
	else
		snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, to, room - 1);
	if (n <= 0)
		return 0;
	to[n] = 0;
	return 1;
}

// named reports whether a path is that of a counter. It is absolute, in the tree, or relative to a folder there.
static int named(int dir, const char *path, struct counter *c)
{
	const char *root = secure_getenv("VERBENA_SYSFS"), *last;
	char folder[PATH_MAX], whole[2 * PATH_MAX];
	size_t n;

	if (!root || root[0] != '/')
		return 0;
	if (path[0] != '/') {
		// Most relative paths end with a name that no counter has, and cost no system call.
		last = strrchr(path, '/');
		if (strpbrk(last ? last + 1 : path, ".-+ ") || !folder_of(dir, folder, sizeof folder))
			return 0;
		n = snprintf(whole, sizeof whole, "%s/%s", folder, path[0] == '.' && path[1] == '/' ? path + 2 : path);
		if (n >= sizeof whole)
			return 0;
		path = whole;
	}
	n = strlen(root);
	if (strncmp(path, root, n) || strncmp(path + n, "/class/infiniband/", 18))
		return 0;
	return split(path + n + 18, c);
}

// value returns the value of a line "NAME VALUE" of an answer.
static unsigned long long value(const char *answer, const char *name)
{
	size_t n = strlen(name);

	for (const char *line = answer; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, n) && line[n] == ' ')
			return strtoull(line + n, NULL, 10);
	}
	return 0;
}

static void limit_waits(int s, int64_t deadline)
{
	int64_t ms = deadline - now();
	struct timeval t;

	ms = ms > ANSWER_MS ? ANSWER_MS : ms < 1 ? 1 : ms;
	t = (struct timeval){.tv_usec = ms * 1000};
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

// ask asks the process with a socket, which must belong to the user in its name, for a device's counters. It returns
// whether the process has the device open. *pid is its number.
static int ask(const char *name, uid_t user, const char *device, char *answer, int64_t deadline, pid_t *pid)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct ucred who = {0};
	socklen_t length = sizeof who, n = strlen(name);
	char question[80];
	size_t got = 0;
	ssize_t more;
	int s, q = snprintf(question, sizeof question, "counters %s\n", device);

	if (n + 1 > sizeof a.sun_path)
		return 0;
	memcpy(a.sun_path + 1, name, n); // an abstract address
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return 0;
	limit_waits(s, deadline);
	if (!syscall(SYS_connect, s, &a, offsetof(struct sockaddr_un, sun_path) + 1 + n) &&
	    !getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length) && who.uid == user &&
	    syscall(SYS_sendto, s, question, q, MSG_NOSIGNAL, NULL, 0) == q)
		while (got < ANSWER - 1 && now() < deadline) {
			more = syscall(SYS_recvfrom, s, answer + got, ANSWER - 1 - got, 0, NULL, NULL);
			if (more > 0)
				got += more;
			else if (more == 0 || errno != EINTR)
				break;
		}
	syscall(SYS_close, s);
	answer[got] = 0;
	*pid = who.pid;
	return got > 0;
}

// own asks this process.
static int own(const struct counter *c, char *answer, int64_t deadline)
{
	char name[64];
	pid_t pid;

	for (int i = 0; i < SUFFIXES; i++) {
		int n = snprintf(name, sizeof name, "verbena-control/%u/%d", geteuid(), getpid());
		if (i)
			snprintf(name + n, sizeof name - n, ".%d", i);
		if (ask(name, geteuid(), c->device, answer, deadline, &pid) && pid == getpid())
			return 1;
	}
	return 0;
}

// sum returns the sum of a counter over the processes of this user; for root over those of all users.
static unsigned long long sum(const struct counter *c, char *answer, int64_t deadline)
{
	static const char prefix[] = " @verbena-control/";
	unsigned long long total = 0;
	char line[512], *name, *end;
	int asked = 0;
	FILE *list = open_next("/proc/net/unix", "re");
	pid_t pid;

	while (list && asked < ASKED && now() < deadline && fgets(line, sizeof line, list)) {
		if (!strstr(line, " 00010000 ") || !(name = strstr(line, prefix))) // the flag of sockets that listen
			continue;
		line[strcspn(line, "\n")] = 0;
		uid_t user = strtoul(name + sizeof prefix - 1, &end, 10);
		if (*end != '/' || (user != geteuid() && geteuid() != 0))
			continue;
		asked++;
		if (ask(name + 2, user, c->device, answer, deadline, &pid))
			total += value(answer, c->file);
	}
	if (list)
		fclose(list);
	return total;
}

// renew writes the value of a counter to the file in memory.
static void renew(int fd, const struct counter *c)
{
	int64_t deadline = now() + DEADLINE_MS;
	char *answer = malloc(ANSWER), text[24];
	int n, e = errno;

	if (!answer)
		return;
	n = snprintf(text, sizeof text, "%llu\n", own(c, answer, deadline) ? value(answer, c->file) : sum(c, answer, deadline));
	if (!ftruncate(fd, n) && pwrite(fd, text, n, 0) != n)
		(void)!ftruncate(fd, 0);
	free(answer);
	errno = e;
}

// marks has a bit for each descriptor that was one of a counter. Programs may have closed it since.
static unsigned char marks[MARKED / 8];

#define LABEL "verbena:"

int open_counter(int dir, const char *path, int flags)
{
	struct counter c;
	char label[160];
	int fd;

	if (!path || flags & (O_ACCMODE | O_DIRECTORY | O_PATH) || !named(dir, path, &c))
		return -1;
	if (syscall(SYS_faccessat, dir, path, R_OK)) // no such counter
		return -1;
	snprintf(label, sizeof label, LABEL "%s/ports/1/%s", c.device, c.file);
	fd = memfd_create(label, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	renew(fd, &c);
	if (fd < MARKED)
		__atomic_or_fetch(&marks[fd / 8], 1 << fd % 8, __ATOMIC_RELAXED);
	return fd;
}

void read_counter(int fd, off_t offset)
{
	static const char before[] = "/memfd:" LABEL;
	char label[PATH_MAX], *end;
	struct counter c;
	int e = errno;

	if (fd < 0 || fd >= MARKED || !(__atomic_load_n(&marks[fd / 8], __ATOMIC_RELAXED) & 1 << fd % 8))
		return;
	if (offset < 0)
		offset = lseek(fd, 0, SEEK_CUR);
	if (offset != 0)
		return;
	if (folder_of(fd, label, sizeof label) && !strncmp(label, before, sizeof before - 1)) {
		if ((end = strstr(label, " (deleted)")))
			*end = 0;
		if (split(label + sizeof before - 1, &c))
			renew(fd, &c);
	} else {
		__atomic_and_fetch(&marks[fd / 8], ~(1 << fd % 8), __ATOMIC_RELAXED); // another file now
	}
	errno = e;
}

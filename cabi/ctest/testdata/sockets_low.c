// Programs with select, or with a table for few descriptors, need low numbers: those of the engine are higher.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define FAILED 1
#include "check.h"

// count counts the descriptors from one number on, below another.
static int count(int from, int below)
{
	int n = 0;

	for (int fd = from; fd < below; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(void)
{
	enum { CONNECTIONS = 5, SPARE = 20, MIDDLE = 128 }; // for what the engine opens later
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	struct rlimit limit;
	int from[CONNECTIONS], to[CONNECTIONS];

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur >= 512);
	int most = limit.rlim_cur / 2 < 1024 ? limit.rlim_cur / 2 : 1024, higher = count(MIDDLE, most);
	int before = count(0, MIDDLE), l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(l, (struct sockaddr *)&a, n) && !listen(l, CONNECTIONS) && !getsockname(l, (struct sockaddr *)&a, &n));
	for (int i = 0; i < CONNECTIONS; i++) {
		from[i] = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(!connect(from[i], (struct sockaddr *)&a, n) && (to[i] = accept(l, NULL, NULL)) >= 0);
	}
	int mine = count(0, MIDDLE) - before;
	if (mine > 2 * CONNECTIONS + 1 + SPARE)
		fprintf(stderr, "%d low descriptors for %d sockets\n", mine, 2 * CONNECTIONS + 1);
	CHECK(mine >= 2 * CONNECTIONS + 1 && mine <= 2 * CONNECTIONS + 1 + SPARE);
	CHECK(to[CONNECTIONS - 1] < before + 2 * CONNECTIONS + 1 + SPARE);
	CHECK(count(MIDDLE, most) == higher); // so closefrom of such a number closes none of the engine's
	return 0;
}

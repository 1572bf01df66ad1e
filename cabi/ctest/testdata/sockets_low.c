// Programs with select, or with a table for few descriptors, need low numbers: most of those of the engine are higher.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define FAILED 1
#include "check.h"

enum { CONNECTIONS = 5, ENGINE = 45, MOST = 256 };

// count counts the low descriptors.
static int count(void)
{
	int n = 0;

	for (int fd = 0; fd < MOST; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	struct rlimit limit;
	int from[CONNECTIONS], to[CONNECTIONS];

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur >= 2 * MOST);
	int before = count(), l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(l, (struct sockaddr *)&a, n) && !listen(l, CONNECTIONS) && !getsockname(l, (struct sockaddr *)&a, &n));
	for (int i = 0; i < CONNECTIONS; i++) {
		from[i] = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(!connect(from[i], (struct sockaddr *)&a, n) && (to[i] = accept(l, NULL, NULL)) >= 0);
	}
	int engine = count() - before - 2 * CONNECTIONS - 1;
	if (engine > ENGINE)
		fprintf(stderr, "the engine has %d low descriptors\n", engine);
	CHECK(engine >= 0 && engine <= ENGINE);
	return 0;
}

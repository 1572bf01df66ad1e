// Prints which sockets are rsockets (4, 6: streams of IPv4 and IPv6, d: datagrams of IPv4), and the sizes of a stream.
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include "check.h"

// taken prints a name if a socket is none of the kernel.
static void taken(int domain, int type, const char *name)
{
	int fd = socket(domain, type, 0), value;
	socklen_t n = sizeof value;

	if (fd < 0)
		return;
	if (!getsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &n))
		printf("%s", name);
	close(fd);
}

static void sizes(void)
{
	static const int options[] = {RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE};
	int fd = socket(AF_INET, SOCK_STREAM, 0), value;

	for (int i = 0; i < 3; i++) {
		socklen_t n = sizeof value;
		CHECK(!getsockopt(fd, SOL_RDMA, options[i], &value, &n));
		printf(" %d", value);
	}
}

int main(void)
{
	taken(AF_INET, SOCK_STREAM, "4");
	taken(AF_INET6, SOCK_STREAM, "6");
	taken(AF_INET, SOCK_DGRAM, "d");
	if (getenv("SIZES"))
		sizes();
	printf("\n");
	return 0;
}

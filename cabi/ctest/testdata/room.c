// A program whose address space is limited gets an error instead of the end of the engine's runtime. When the limit is
// gone, the engine loads.
#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>

#include "check.h"

int main(void)
{
	struct rlimit before, small;
	int n;

	CHECK(!getrlimit(RLIMIT_AS, &before));
	small = before;
	small.rlim_cur = 400 << 20;
	CHECK(!setrlimit(RLIMIT_AS, &small));
	errno = 0;
	CHECK(!ibv_get_device_list(&n) && errno == ENOMEM);
	CHECK(!setrlimit(RLIMIT_AS, &before));
	CHECK(ibv_get_device_list(&n));
	return 0;
}

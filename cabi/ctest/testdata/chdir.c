// A program changes its working folder before it uses a device. So does its child.
#include <infiniband/verbs.h>
#include <sys/wait.h>

#include "check.h"

int main(void)
{
	int status;

	CHECK(!chdir("/") && ibv_get_device_list(NULL));
	pid_t child = fork();
	if (!child) {
		CHECK(ibv_get_device_list(NULL));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

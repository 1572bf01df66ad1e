// A program without descriptors 0 to 2 opens a device. The engine has none of these numbers: what the program prints
// would go into its files. The program finds them closed as before: its own writes fail with EBADF, and programs that
// it starts do not have them.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "device.h"

#include "check.h"

// refused reports whether no data goes through descriptors 0 to 2.
static int refused(void)
{
	char b = 'x';

	for (int fd = 0; fd <= 2; fd++)
		if (write(fd, &b, 1) != -1 || errno != EBADF || read(fd, &b, 1) != -1 || errno != EBADF)
			return 0;
	return 1;
}

// use makes a QP, which opens the sockets of the device.
static void use(int report)
{
	struct ibv_context *c = open_device("lone");
	struct ibv_qp_init_attr in = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};

	if (!c || !(in.send_cq = in.recv_cq = ibv_create_cq(c, 4, NULL, ibv_create_comp_channel(c), 0)) ||
	    !ibv_create_qp(ibv_alloc_pd(c), &in)) {
		dprintf(report, "cannot use the device: %s\n", strerror(errno));
		_exit(FAILED);
	}
}

static void must(int ok, int report, const char *what)
{
	if (!ok) {
		dprintf(report, "%s\n", what);
		_exit(FAILED);
	}
}

int main(void)
{
	int status, report = fcntl(2, F_DUPFD_CLOEXEC, 3);

	CHECK(report >= 3);
	for (int fd = 0; fd <= 2; fd++)
		close(fd);
	use(report);
	must(refused(), report, "data goes through a descriptor of 0 to 2");
	pid_t child = fork(); // has an engine of its own
	if (!child) {
		use(report);
		must(refused(), report, "data goes through a descriptor of 0 to 2 of a child");
		execl("/bin/sh", "sh", "-c", "test ! -e /proc/$$/fd/1 && test ! -e /proc/$$/fd/2", (char *)NULL);
		_exit(FAILED);
	}
	must(child > 0 && waitpid(child, &status, 0) == child, report, "there is no child");
	must(!status, report, "a child has failed, or its program has 1 or 2");
	return 0;
}

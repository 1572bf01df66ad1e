// The functions of the C library that find the virtual files. The tree has the file of one device.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>

#include "check.h"

#define PATH "/sys/class/infiniband/probe/ports/1/state"

// holds reports whether a stream has the text of the file, and closes it.
static int holds(FILE *f)
{
	char text[16] = "";

	return f && fgets(text, sizeof text, f) && !strcmp(text, "4: ACTIVE\n") && !fclose(f);
}

int main(void)
{
	struct stat st;
	int fd = open(PATH, O_RDONLY);

	CHECK(fd >= 0 && !close(fd) && !stat(PATH, &st) && S_ISREG(st.st_mode));
	CHECK(!access(PATH, R_OK) && !euidaccess(PATH, R_OK) && !eaccess(PATH, R_OK));
	CHECK(!faccessat(AT_FDCWD, PATH, R_OK, AT_EACCESS) && eaccess(PATH "s", R_OK) == -1 && errno == ENOENT);
	CHECK(holds(fopen(PATH, "r")) && holds(freopen(PATH, "r", fopen("/dev/null", "r"))));
	CHECK(holds(freopen64(PATH, "r", fopen("/dev/null", "r"))));
	return 0;
}

// What the programs of this folder require.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef FAILED
#define FAILED 1 // the exit status of CHECK
#endif

// CHECK ends the process at once if a condition is false. It serves children of fork and threads, too.
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); \
			_exit(FAILED); \
		} \
	} while (0)

// MUST ends the program if a condition is false, with what it has printed so far.
#define MUST(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

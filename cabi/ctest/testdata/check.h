// What the programs of this folder require.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef FAILED
#define FAILED 1 // the exit status of CHECK
#endif

// WHOSE tells apart the errno of a condition and one that was there before.
#define WHOSE(before) (errno == (before) ? ", perhaps of an earlier call" : "")

// CHECK ends the process at once if a condition is false. It serves children of fork and threads, too.
#define CHECK(x) \
	do { \
		int before_ = errno; \
		if (!(x)) { \
			fprintf(stderr, "line %d: %s: %s%s\n", __LINE__, #x, strerror(errno), WHOSE(before_)); \
			_exit(FAILED); \
		} \
	} while (0)

// MUST ends the program if a condition is false, with what it has printed so far.
#define MUST(condition) \
	do { \
		int before_ = errno; \
		if (!(condition)) { \
			printf("line %d: %s: %s%s\n", __LINE__, #condition, strerror(errno), WHOSE(before_)); \
			exit(1); \
		} \
	} while (0)

// WANT is for programs that compare the results of many calls and go on: failed is their exit status.
#include <stdio.h>
#include <string.h>

static int failed;

// WANT compares the errno of a call that returns it.
#define WANT(call, want) \
	do { \
		int got_ = (call); \
		if (got_ != (want)) { \
			printf("%s: %d (%s), want %d\n", #call, got_, strerror(got_), want); \
			failed = 1; \
		} \
	} while (0)

// OK for calls that must leave errno as it was.
#include "check.h"

// HERE is the address of the test's device.
#define HERE "127.0.9.3"

enum { BEFORE = 1234 };

static int changed;

// OK requires that a call succeeds, and reports an errno that it changes.
#define OK(x) \
	do { \
		errno = BEFORE; \
		CHECK(x); \
		if (errno != BEFORE) { \
			printf("line %d: %s: errno %d: must be as before\n", __LINE__, #x, errno); \
			changed = 1; \
		} \
	} while (0)

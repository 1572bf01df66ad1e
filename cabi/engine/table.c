//go:build linux && cgo

#include "_cgo_export.h"

// The casts below may change only which type a pointer points to.
#pragma GCC diagnostic error "-Wcast-function-type"

#define VERBENA_ENTRY(result, name, params) .name = (result(*) params)vrb_##name,

static const struct vrb_engine table = {
	.abi = VERBENA_ENGINE_ABI,
	.size = sizeof(struct vrb_engine),
	VERBENA_ENGINE(VERBENA_ENTRY)
};

const struct vrb_engine *verbena_engine(uint32_t abi) { return abi == VERBENA_ENGINE_ABI ? &table : NULL; }

// x_cgo_bindm is of package runtime/cgo: it keeps what the thread frees at its end. It is weak, since cgo links the C
// files of each package without the others first.
extern void x_cgo_bindm(void *g) __attribute__((weak));

void verbena_forked(void)
{
	if (x_cgo_bindm)
		x_cgo_bindm(NULL);
}

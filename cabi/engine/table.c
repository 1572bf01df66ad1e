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

//go:build linux && cgo

#include "_cgo_export.h"

// The casts below may change only which type a pointer points to.
#pragma GCC diagnostic error "-Wcast-function-type"

#define VERBENA_ENTRY(result, name, params) .name = (result(*) params)vrb_mad_##name,

static const struct vrb_mads table = {VERBENA_MAD(VERBENA_ENTRY)};

const struct vrb_mads *verbena_mad(uint32_t abi) { return abi == VERBENA_MAD_ABI ? &table : NULL; }

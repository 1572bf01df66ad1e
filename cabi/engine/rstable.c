//go:build linux && cgo

#include "_cgo_export.h"

// The casts below may change only which type a pointer points to.
#pragma GCC diagnostic error "-Wcast-function-type"

#define VERBENA_ENTRY(result, name, params) .name = (result(*) params)vrb_rs_##name,

static const struct vrb_rs table = {VERBENA_RS(VERBENA_ENTRY)};

const struct vrb_rs *verbena_rs(uint32_t abi) { return abi == VERBENA_RS_ABI ? &table : NULL; }

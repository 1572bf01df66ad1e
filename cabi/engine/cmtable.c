//go:build linux && cgo

#include "_cgo_export.h"

// The casts below may change only which type a pointer points to.
#pragma GCC diagnostic error "-Wcast-function-type"

#define VERBENA_ENTRY(result, name, params) .name = (result(*) params)vrb_cm_##name,

static const struct vrb_cm table = {VERBENA_CM(VERBENA_ENTRY)};

const struct vrb_cm *verbena_cm(uint32_t abi) { return abi == VERBENA_CM_ABI ? &table : NULL; }

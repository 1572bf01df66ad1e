// The insides of libibumad.so.3: what it knows of devices comes from libibverbs.so.1, datagrams go through the engine.
#ifndef VERBENA_IBUMAD_LIB_H
#define VERBENA_IBUMAD_LIB_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../abi/verbena_umad.h"
#include "../abi/verbena_verbs.h"

#define UM_HIDDEN __attribute__((visibility("hidden")))

// um_name returns name; if it is NULL or empty, room with the name of the first device, or NULL if there is none.
UM_HIDDEN const char *um_name(const char *name, char room[UMAD_CA_NAME_LEN]);

#endif

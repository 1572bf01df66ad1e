// The parts of libverbena-sysfs.so.
#ifndef VERBENA_PRELOAD_H
#define VERBENA_PRELOAD_H

#include <stdio.h>
#include <sys/types.h>

#define HIDDEN __attribute__((visibility("hidden")))

// open_next is the fopen of the C library.
HIDDEN FILE *open_next(const char *path, const char *mode);

// open_counter opens the file of a counter for reading. path is one of the tree, or relative to dir. It returns -1 for
// other paths.
HIDDEN int open_counter(int dir, const char *path, int flags);

// read_counter renews the value if fd is a counter's and offset is 0. It is called before reads; -1 is the descriptor's
// own offset.
HIDDEN void read_counter(int fd, off_t offset);

#endif

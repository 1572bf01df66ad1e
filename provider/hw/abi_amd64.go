//go:build linux

package hw

// mutexMore is the size of glibc's pthread_mutex_t less 40 bytes. Members of structures behind one lie by that much
// further on.
const mutexMore = 0

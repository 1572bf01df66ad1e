// The macros of the generated files stubs.c: definitions of functions that are not supported, and versions of names.
#ifndef VERBENA_STUBS_H
#define VERBENA_STUBS_H

#include <errno.h>

#define STUB_errno(name) int name(void); int name(void) { return errno = EOPNOTSUPP; }
#define STUB_minus(name) int name(void); int name(void) { errno = EOPNOTSUPP; return -1; }
#define STUB_null(name) void *name(void); void *name(void) { errno = EOPNOTSUPP; return 0; }
#define STUB_zero(name) int name(void); int name(void) { errno = EOPNOTSUPP; return 0; }
#define STUB_void(name) void name(void); void name(void) {}
#define STUB_data(name, size) char name[size];

// UNTIL makes a stub weak: the definition in another file takes its place.
#define UNTIL(name) __attribute__((weak)) __typeof__(name) name;

// HIDE makes a definition the hidden version of a name.
#define HIDE(definition, versioned) __asm__(".symver " #definition ", " versioned);

// SAME makes a hidden version that jumps to the default one.
#if defined(__x86_64__)
#define JUMP(name) "endbr64\n\tjmp " #name "@PLT\n"
#elif defined(__aarch64__)
#define JUMP(name) "bti c\n\tb " #name "\n"
#else
#error "the stubs are written for x86-64 and arm64"
#endif
#define SAME(name, definition, versioned) \
	__asm__(".pushsection .text\n\t.globl " #definition "\n\t.type " #definition ", %function\n" #definition ":\n\t" \
		JUMP(name) ".size " #definition ", . - " #definition "\n\t.symver " #definition ", " versioned "\n.popsection");

#endif

// Package hw gives programs the RDMA devices of this machine: adapters, and the kernel's software devices (rdma_rxe,
// siw). It calls the machine's libibverbs.so.1, which it loads at run time, and needs neither cgo nor C headers to
// build. Import it for its side effect:
//
//	import _ "github.com/verbena-rdma/verbena/provider/hw"
//
// A program that imports it is linked dynamically with the C library (libc.so.6), even if it is built with
// CGO_ENABLED=0. Package provider/soft does not do that; provider/auto imports both.
//
// # Devices
//
// The devices have the names of the kernel: mlx5_0, rxe0. Without the library or without devices there are none, and
// Available gives the reason. If no other provider has devices either, verbs.Devices returns that reason. With
// VERBENA_PROVIDER=soft in the environment the package loads the library only for Library.
//
// The library is found as the dynamic loader finds it: LD_LIBRARY_PATH, the loader's cache, the system's folders.
// Verbena's own libibverbs.so.1 (docs/c-programs.md) is recognised and not used: its devices are those of
// provider/soft.
//
// # Memory
//
// Any memory may be registered. A region pins its memory with runtime.Pinner until it is closed: the garbage collector
// neither frees nor moves it. The kernel locks the pages of a region in memory, which RLIMIT_MEMLOCK limits; the error
// of a registration that exceeds it is ENOMEM and names the limit.
//
// # Threads
//
// PostSend, PostRecv, Poll and ReqNotify translate a list of requests into memory that the object owns and call the
// device's functions once for the whole list. They allocate nothing. On amd64 these calls keep the goroutine's
// processor until the function returns, which does not wait. Events wait in Go's network poller: a context
// has two descriptors there and blocks no thread.
//
// # Unsupported features
//
// What the device's library lacks returns EOPNOTSUPP. On systems other than Linux on amd64 and arm64 there are no
// devices.
//
// The package imports verbs, internal/driver, internal/sysroute, golang.org/x/sys and github.com/ebitengine/purego.
package hw

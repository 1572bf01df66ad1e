// Command interop proves Verbena against real peers: it boots virtual machines with the kernel's rdma_rxe and the C tools
// (interop/lab), runs every case of its table in both directions, and prints what happened.
//
// Usage: go run ./interop [flags]
//
// It exits with 0 when every case passed, with 1 when one failed, and with 2 when it could not run at all: it needs root,
// /dev/net/tun and QEMU. README.md says what the cases prove.
package main

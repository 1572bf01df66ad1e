// Command interop tests Verbena against real peers: it boots virtual machines with the kernel's rdma_rxe
// and the C tools (interop/lab), runs every case of its table in both directions, and prints the results.
//
// Usage: go run ./interop [flags]
//
// The exit status is 0 if every case passed, 1 if one failed, and 2 if the suite could not run: it needs
// root, /dev/net/tun and QEMU. README.md describes what the cases prove.
package main

package udp

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Classic BPF instructions.
const (
	bpfLoadWord   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfAnd        = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfMod        = unix.BPF_ALU | unix.BPF_MOD | unix.BPF_K
	bpfJumpEq     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfShiftRight = unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K
	bpfRetA       = unix.BPF_RET | unix.BPF_A
	bpfRetK       = unix.BPF_RET | unix.BPF_K
)

// steer lets the kernel choose among the n sockets of fd's REUSEPORT group by the destination QPN, which is in bytes
// 5 to 7 of the UDP payload. Sockets count in the order in which they were bound.
func steer(fd, n int) error {
	err := attach(fd, unix.SO_ATTACH_REUSEPORT_CBPF, []unix.SockFilter{
		{Code: bpfLoadWord, K: 4},
		{Code: bpfAnd, K: 0xFFFFFF},
		{Code: bpfMod, K: uint32(n)},
		{Code: bpfRetA},
	})
	if err != nil {
		return fmt.Errorf("link/udp: steering packets to %d shards: %w", n, err)
	}
	return nil
}

// steerLanes lets the kernel choose among the sockets of a group shared by processes: see package host.
func steerLanes(fd int) error {
	err := attach(fd, unix.SO_ATTACH_REUSEPORT_CBPF, []unix.SockFilter{
		{Code: bpfLoadWord, K: 4},
		{Code: bpfAnd, K: 0xFFFFFF},
		{Code: bpfJumpEq, K: wire.GSIQPN, Jt: 3},
		{Code: bpfJumpEq, K: wire.MulticastQPN, Jt: 2}, // see Join
		{Code: bpfShiftRight, K: 24 - host.LaneBits},
		{Code: bpfRetA},
		{Code: bpfRetK, K: host.GSI},
	})
	if err != nil {
		return fmt.Errorf("link/udp: steering packets to processes: %w", err)
	}
	return nil
}

// dropAll refuses whatever is sent to the socket.
func dropAll(o *options) {
	if o.err == nil {
		attach(o.fd, unix.SO_ATTACH_FILTER, []unix.SockFilter{{Code: bpfRetK}})
	}
}

func attach(fd, opt int, prog []unix.SockFilter) error {
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, opt, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	runtime.KeepAlive(prog)
	return err
}

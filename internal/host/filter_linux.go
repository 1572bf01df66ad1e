package host

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Classic BPF instructions.
const (
	bpfLoadWord   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfLoadHalf   = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	bpfLoadByte   = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	bpfAdd        = unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K
	bpfAnd        = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfShiftRight = unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K
	bpfJumpEq     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfJumpGe     = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfJumpGt     = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	bpfJump       = unix.BPF_JMP | unix.BPF_JA
	bpfRetA       = unix.BPF_RET | unix.BPF_A
	bpfRetK       = unix.BPF_RET | unix.BPF_K

	destQPN = 4 // offset of a word whose lower 24 bits are the QP number, in bytes
	whole   = 0xFFFFFFFF
)

// steer attaches the program that chooses among the sockets of the group of fd.
func steer(fd int, prog []unix.SockFilter) error {
	if err := attach(fd, unix.SO_ATTACH_REUSEPORT_CBPF, prog); err != nil {
		return fmt.Errorf("link/udp: setsockopt SO_ATTACH_REUSEPORT_CBPF: %w", err)
	}
	return nil
}

// steering returns the program that chooses among the sockets of a group, of which slots are those of QPN slots. A
// packet arrives at the socket of the slot of its QP number, connection management at the socket of the slot in the
// communication ID of the receiver if a process owns that slot. Requests, which carry a service ID, arrive at the
// socket of QP 1 if the filter passes them. Other requests and everything else for QP 1 arrive at the socket of strays:
// nobody has asked for them, and many may come. Among them are the messages for a process that has exited: their
// senders would repeat them for a minute without an answer. All other packets go to the sink. So do packets for the
// multicast QP, which the kernel also delivers to the sockets of multicast groups, unless loopback6 is set: see
// udp.Link.Join.
func steering(slots int, owned []idRange, loopback6 bool, requests requestFilter) []unix.SockFilter {
	multicast := uint32(Sink)
	if loopback6 {
		multicast = GSI
	}
	choice := requests.program()
	prog := []unix.SockFilter{
		0: {Code: bpfLoadWord, K: destQPN},
		1: {Code: bpfAnd, K: 0xFFFFFF},
		2: {Code: bpfJumpEq, K: wire.GSIQPN, Jt: 7}, // to 10
		3: {Code: bpfJumpEq, K: wire.MulticastQPN, Jt: 1},
		4: {Code: bpfJump, K: 1},
		5: {Code: bpfRetK, K: multicast},
		6: {Code: bpfShiftRight, K: slotShift},
		7: {Code: bpfJumpGe, K: uint32(slots), Jt: 10}, // to 18
		8: {Code: bpfAdd, K: FirstSlot},
		9: {Code: bpfRetA},

		10: {Code: bpfLoadByte, K: MADOffset + MADClass},
		11: {Code: bpfJumpEq, K: ClassCM, Jf: 7}, // to 19
		12: {Code: bpfLoadHalf, K: MADOffset + MADAttr},
		13: {Code: bpfJumpEq, K: AttrREQ, Jt: 8},     // to 22
		14: {Code: bpfJumpEq, K: AttrSIDRReq, Jt: 7}, // to 22
		15: {Code: bpfJumpEq, K: AttrSIDRRep, Jt: 4}, // to 20
		16: {Code: bpfLoadByte, K: MADOffset + MADPeerID},
		17: {Code: bpfJump, K: 3}, // to 21
		18: {Code: bpfRetK, K: Sink},
		19: {Code: bpfRetK, K: Strays},
		20: {Code: bpfLoadByte, K: MADOffset + MADLocalID},
		21: {Code: bpfJump, K: uint32(len(choice))}, // behind the choice among the requests
	}
	prog = append(prog, choice...) // 22
	return appendRanges(prog, owned, unix.SockFilter{Code: bpfAdd, K: FirstSlot}, unix.SockFilter{Code: bpfRetA})
}

// refuse attaches a filter that drops everything.
func refuse(fd int) error {
	return attach(fd, unix.SO_ATTACH_FILTER, []unix.SockFilter{{Code: bpfRetK}})
}

// admit removes the filter of refuse.
func admit(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) }

// confine attaches a filter that passes only the packets of a slot to its socket, whatever the program of the group
// does, and locks it: no owner of the descriptor can remove it.
func confine(fd, slot int) error {
	err := attach(fd, unix.SO_ATTACH_FILTER, confinement(slot))
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
	}
	if err != nil {
		return fmt.Errorf("link/udp: confining the socket of QPN slot %d: %w", slot, err)
	}
	return nil
}

// udpHeader is the length of the header that a filter of a socket sees before the packet.
const udpHeader = 8

// confinement returns the filter that passes only the packets of a slot.
func confinement(slot int) []unix.SockFilter {
	n := uint32(slot)
	return []unix.SockFilter{
		0:  {Code: bpfLoadWord, K: udpHeader + destQPN},
		1:  {Code: bpfAnd, K: 0xFFFFFF},
		2:  {Code: bpfJumpEq, K: wire.GSIQPN, Jt: 3},
		3:  {Code: bpfJumpEq, K: wire.MulticastQPN, Jt: 11},
		4:  {Code: bpfShiftRight, K: slotShift},
		5:  {Code: bpfJump, K: 7}, // to 13
		6:  {Code: bpfLoadHalf, K: udpHeader + MADOffset + MADAttr},
		7:  {Code: bpfJumpEq, K: AttrREQ, Jt: 7},
		8:  {Code: bpfJumpEq, K: AttrSIDRReq, Jt: 6},
		9:  {Code: bpfJumpEq, K: AttrSIDRRep, Jt: 2},
		10: {Code: bpfLoadByte, K: udpHeader + MADOffset + MADPeerID},
		11: {Code: bpfJump, K: 1}, // to 13
		12: {Code: bpfLoadByte, K: udpHeader + MADOffset + MADLocalID},
		13: {Code: bpfJumpEq, K: n, Jf: 1},
		14: {Code: bpfRetK, K: whole},
		15: {Code: bpfRetK},
	}
}

func attach(fd, opt int, prog []unix.SockFilter) error {
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, opt, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	runtime.KeepAlive(prog)
	return err
}

// setBuffer sets the receive buffer of a socket to size bytes as the kernel accounts them, beyond the limit of the
// system if the process has the right.
func setBuffer(fd, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size/2) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size/2)
	}
}

// drain discards the packets in a socket.
func drain(fd int) {
	var buf [1]byte
	for {
		if _, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC); err != nil && err != unix.EINTR {
			return
		}
	}
}

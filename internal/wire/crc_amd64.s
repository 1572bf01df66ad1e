#include "textflag.h"

// Registers of fold: AX the factors, SI the data not yet read, CX how many bytes that are.

// MOVE(k, from, tmp) multiplies both halves of each 16 bytes of from by the factors k, leaving the two products in from and tmp.
#define MOVE(k, from, tmp) \
	VPCLMULQDQ $0x00, k, from, tmp \
	VPCLMULQDQ $0x11, k, from, from

// STEP moves the 32 bytes of acc to those at off(SI).
#define STEP(acc, tmp, off) \
	MOVE(Y8, acc, tmp) \
	VPXOR off(SI), tmp, tmp \
	VPXOR tmp, acc, acc

// INTO moves the 32 bytes of from to those of to.
#define INTO(from, to, tmp) \
	MOVE(Y8, from, tmp) \
	VPXOR tmp, to, to \
	VPXOR from, to, to

// func fold(last *[16]byte, k *[3][2]uint64, s uint32, p []byte)
TEXT ·fold(SB), NOSPLIT, $0-48
	MOVQ k+8(FP), AX
	MOVQ p_base+24(FP), SI
	MOVQ p_len+32(FP), CX
	MOVL s+16(FP), BX
	VMOVD BX, X4
	VMOVDQU 32(AX), X8
	CMPQ CX, $128
	JLT short
	VPXOR (SI), Y4, Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	ADDQ $128, SI
	SUBQ $128, CX
	VBROADCASTI128 (AX), Y8
	CMPQ CX, $128
	JLT gather

	PCALIGN $32
wide:
	STEP(Y0, Y4, 0)
	STEP(Y1, Y5, 32)
	STEP(Y2, Y6, 64)
	STEP(Y3, Y7, 96)
	ADDQ $128, SI
	SUBQ $128, CX
	CMPQ CX, $128
	JGE wide

gather:
	VBROADCASTI128 16(AX), Y8
	INTO(Y0, Y1, Y4)
	INTO(Y1, Y2, Y4)
	INTO(Y2, Y3, Y4)

	VMOVDQU 32(AX), X8
	VEXTRACTI128 $1, Y3, X0
	MOVE(X8, X3, X4)
	VPXOR X4, X0, X0
	VPXOR X3, X0, X0
	JMP left
short:
	VPXOR (SI), X4, X0
	ADDQ $16, SI
	SUBQ $16, CX
	JMP left
narrow:
	MOVE(X8, X0, X4)
	VPXOR (SI), X4, X4
	VPXOR X4, X0, X0
	ADDQ $16, SI
	SUBQ $16, CX
left:
	CMPQ CX, $16
	JGE narrow

	MOVQ last+0(FP), DI
	VMOVDQU X0, (DI)
	VZEROUPPER
	RET

// func hasVPCLMULQDQ() bool
TEXT ·hasVPCLMULQDQ(SB), NOSPLIT, $0-1
	MOVL $0, AX
	CPUID
	CMPL AX, $7
	JLT no
	MOVL $7, AX
	MOVL $0, CX
	CPUID
	SHRL $10, CX
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET
no:
	MOVB $0, ret+0(FP)
	RET

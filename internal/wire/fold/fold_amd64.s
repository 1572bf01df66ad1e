#include "textflag.h"

// Registers of both functions: AX the factors, SI the data not yet read, CX how many bytes that are, DI where they are copied
// to, 0 if they are not. last, as the first argument, is where the 16 bytes go that have the same remainder.

// MOVE(k, from, tmp) multiplies both halves of each 16 bytes of from by the factors k, leaving the two products in from and tmp.
#define MOVE(k, from, tmp) \
	VPCLMULQDQ $0x00, k, from, tmp \
	VPCLMULQDQ $0x11, k, from, from

// NARROW puts what is left in, 16 bytes at a time: X8 are the factors, X0 those before.
#define NARROW \
	CMPQ CX, $16 \
	JLT  end \
narrow: \
	VMOVDQU (SI), X5 \
	TESTQ DI, DI \
	JEQ  read \
	VMOVDQU X5, (DI) \
	ADDQ $16, DI \
read: \
	MOVE(X8, X0, X4) \
	VPXOR X5, X4, X4 \
	VPXOR X4, X0, X0 \
	ADDQ $16, SI \
	SUBQ $16, CX \
	CMPQ CX, $16 \
	JGE  narrow \
end: \
	MOVQ last+0(FP), BX \
	VMOVDQU X0, (BX) \
	VZEROUPPER \
	RET

// ARGS takes the arguments but the first one, s into X4.
#define ARGS \
	MOVQ k+8(FP), AX \
	MOVL s+16(FP), BX \
	MOVQ dst+24(FP), DI \
	MOVQ p_base+32(FP), SI \
	MOVQ p_len+40(FP), CX \
	VMOVD BX, X4

// LOAD(V, n, ...) takes the next 4*n bytes with V, the instruction that moves registers of n bytes.
#define LOAD(V, n, a, b, c, d) \
	V (SI), a \
	V n(SI), b \
	V (2*n)(SI), c \
	V (3*n)(SI), d \
	ADDQ $(4*n), SI \
	SUBQ $(4*n), CX

#define STORE(V, n, a, b, c, d) \
	V a, (DI) \
	V b, n(DI) \
	V c, (2*n)(DI) \
	V d, (3*n)(DI) \
	ADDQ $(4*n), DI

// INTO256(from, to, tmp) moves the 32 bytes of from to those of to.
#define INTO256(from, to, tmp) \
	MOVE(Y8, from, tmp) \
	VPXOR tmp, to, to \
	VPXOR from, to, to

// func fold256(last *[16]byte, k *[3]factors, s uint32, dst *byte, p []byte)
TEXT ·fold256(SB), NOSPLIT, $0-56
	ARGS
	VMOVDQU 32(AX), X8
	CMPQ CX, $128
	JLT short
	LOAD(VMOVDQU, 32, Y0, Y1, Y2, Y3)
	TESTQ DI, DI
	JEQ begun
	STORE(VMOVDQU, 32, Y0, Y1, Y2, Y3)
begun:
	VPXOR Y4, Y0, Y0
	VBROADCASTI128 (AX), Y8
	CMPQ CX, $128
	JLT gather

	PCALIGN $32
wide:
	LOAD(VMOVDQU, 32, Y10, Y11, Y12, Y13)
	TESTQ DI, DI
	JEQ step
	STORE(VMOVDQU, 32, Y10, Y11, Y12, Y13)
step:
	MOVE(Y8, Y0, Y4)
	MOVE(Y8, Y1, Y5)
	MOVE(Y8, Y2, Y6)
	MOVE(Y8, Y3, Y7)
	VPXOR Y10, Y4, Y4
	VPXOR Y11, Y5, Y5
	VPXOR Y12, Y6, Y6
	VPXOR Y13, Y7, Y7
	VPXOR Y4, Y0, Y0
	VPXOR Y5, Y1, Y1
	VPXOR Y6, Y2, Y2
	VPXOR Y7, Y3, Y3
	CMPQ CX, $128
	JGE wide

gather:
	VBROADCASTI128 16(AX), Y8
	INTO256(Y0, Y1, Y4)
	INTO256(Y1, Y2, Y4)
	INTO256(Y2, Y3, Y4)
	VMOVDQU 32(AX), X8
	VEXTRACTI128 $1, Y3, X0
	MOVE(X8, X3, X4)
	VPXOR X4, X0, X0
	VPXOR X3, X0, X0
	JMP rest
short:
	VMOVDQU (SI), X0
	TESTQ DI, DI
	JEQ first
	VMOVDQU X0, (DI)
	ADDQ $16, DI
first:
	VPXOR X4, X0, X0
	ADDQ $16, SI
	SUBQ $16, CX
rest:
	NARROW

// STEP512(acc, data, tmp) moves the 64 bytes of acc to those of data, which is where it then stands.
#define STEP512(acc, data, tmp) \
	MOVE(Z8, acc, tmp) \
	VPTERNLOGD $0x96, data, tmp, acc

// INTO512(from, to, tmp) moves the 64 bytes of from to those of to.
#define INTO512(from, to, tmp) \
	MOVE(Z8, from, tmp) \
	VPTERNLOGD $0x96, from, tmp, to

// func fold512(last *[16]byte, k *[6]factors, s uint32, dst *byte, p []byte)
TEXT ·fold512(SB), NOSPLIT, $0-56
	ARGS
	LOAD(VMOVDQU64, 64, Z0, Z1, Z2, Z3)
	TESTQ DI, DI
	JEQ begun
	STORE(VMOVDQU64, 64, Z0, Z1, Z2, Z3)
begun:
	VPXORQ Z4, Z0, Z0
	VBROADCASTI32X4 (AX), Z8
	CMPQ CX, $256
	JLT gather

	PCALIGN $32
wide:
	LOAD(VMOVDQU64, 64, Z10, Z11, Z12, Z13)
	TESTQ DI, DI
	JEQ step
	STORE(VMOVDQU64, 64, Z10, Z11, Z12, Z13)
step:
	STEP512(Z0, Z10, Z4)
	STEP512(Z1, Z11, Z5)
	STEP512(Z2, Z12, Z6)
	STEP512(Z3, Z13, Z7)
	CMPQ CX, $256
	JGE wide

gather:
	VBROADCASTI32X4 16(AX), Z8
	INTO512(Z0, Z1, Z4)
	INTO512(Z1, Z2, Z4)
	INTO512(Z2, Z3, Z4)
	CMPQ CX, $64
	JLT lanes
blocks:
	VMOVDQU64 (SI), Z10
	TESTQ DI, DI
	JEQ block
	VMOVDQU64 Z10, (DI)
	ADDQ $64, DI
block:
	STEP512(Z3, Z10, Z4)
	ADDQ $64, SI
	SUBQ $64, CX
	CMPQ CX, $64
	JGE blocks

lanes: // each of the first three 16 bytes has its own way to the last
	VMOVDQU64 32(AX), Z8
	VEXTRACTI32X4 $3, Z3, X0
	MOVE(Z8, Z3, Z4)
	VPXORQ Z3, Z4, Z4
	VEXTRACTI32X4 $1, Z4, X5
	VEXTRACTI32X4 $2, Z4, X6
	VPXOR X4, X0, X0
	VPXOR X5, X6, X6
	VPXOR X6, X0, X0
	VMOVDQU 64(AX), X8
	NARROW

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

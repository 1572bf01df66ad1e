//go:build linux

#include "funcdata.h"
#include "textflag.h"

// func callC: with the C library's calling convention, on the system stack: caller in DI. It calls caller.fn with
// caller.args and stores the result in caller.result. Its offsets are checked by TestCallerLayout.
TEXT callC(SB), NOSPLIT, $16
	MOVQ DI, 8(SP)
	MOVQ 0(DI), R10
	MOVQ 16(DI), SI
	MOVQ 24(DI), DX
	MOVQ 8(DI), DI
	XORL AX, AX
	CALL R10
	MOVQ 8(SP), DI
	MOVQ AX, 32(DI)
	XORL AX, AX
	RET

GLOBL ·callCAddress(SB), NOPTR|RODATA, $8
DATA ·callCAddress(SB)/8, $callC(SB)

// func onSystemStack(fn, arg unsafe.Pointer)
//
// runtime.asmcgocall is what the runtime itself calls C with, where it has to. It changes stacks and nothing else.
TEXT ·onSystemStack(SB), 0, $24-16
	NO_LOCAL_POINTERS
	MOVQ fn+0(FP), AX
	MOVQ AX, 0(SP)
	MOVQ arg+8(FP), AX
	MOVQ AX, 8(SP)
	CALL runtime·asmcgocall(SB)
	RET

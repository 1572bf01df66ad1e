//go:build race

#include "textflag.h"

// func addWord(p *uint64, add uint64) uint64
TEXT ·addWord(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), BX
	MOVQ add+8(FP), AX
	MOVQ AX, CX
	LOCK
	XADDQ AX, 0(BX)
	ADDQ CX, AX
	MOVQ AX, ret+16(FP)
	RET

// func casWord(p *uint64, old, swap uint64) bool
TEXT ·casWord(SB), NOSPLIT, $0-25
	MOVQ p+0(FP), BX
	MOVQ old+8(FP), AX
	MOVQ swap+16(FP), CX
	LOCK
	CMPXCHGQ CX, 0(BX)
	SETEQ ret+24(FP)
	RET

//go:build race

#include "textflag.h"

// func addWord(p *uint64, add uint64) uint64
TEXT ·addWord(SB), NOSPLIT, $0-24
	MOVD p+0(FP), R0
	MOVD add+8(FP), R1
again:
	LDAXR (R0), R2
	ADD R1, R2
	STLXR R2, (R0), R3
	CBNZ R3, again
	MOVD R2, ret+16(FP)
	RET

// func casWord(p *uint64, old, swap uint64) bool
TEXT ·casWord(SB), NOSPLIT, $0-25
	MOVD p+0(FP), R0
	MOVD old+8(FP), R1
	MOVD swap+16(FP), R2
again:
	LDAXR (R0), R3
	CMP R1, R3
	BNE done
	STLXR R2, (R0), R4
	CBNZ R4, again
done:
	CSET EQ, R0
	MOVB R0, ret+24(FP)
	RET

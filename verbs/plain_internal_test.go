package verbs

import (
	"math/rand/v2"
	"testing"
)

// TestPlainRequestsPass: checkAny accepts what plain accepts.
func TestPlainRequestsPass(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	plain := make(map[QPType]int)
	for n := range 200_000 {
		typ := []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeRawPacket, QPTypeXRCSend}[n%5]
		most := postLimits{sendSGE: uint32(rnd.IntN(3)), inline: uint32(rnd.IntN(3))}
		qp := &QP{opcodes: opcodesOf[typ], ctx: new(Context), init: QPInitAttr{Type: typ}, most: most,
			connected: typ == QPTypeRC || typ == QPTypeUC}
		wr := SendWR{Opcode: WROpcode(rnd.IntN(16)), SGList: make([]SGE, rnd.IntN(4))}
		wr.Flags = SendFlags(rnd.IntN(64) & rnd.IntN(64))
		if k := rnd.IntN(4); k > 0 {
			wr.Inline = make([]byte, k-1)
		}
		if !qp.plain(&wr) {
			continue
		}
		plain[typ]++
		if err := qp.checkAny(&wr); err != nil {
			t.Fatalf("%v with limits %+v, %+v: %v", typ, most, wr, err)
		}
	}
	if plain[QPTypeRC] < 100 || plain[QPTypeUC] < 100 || len(plain) != 2 {
		t.Errorf("requests that were plain: %v, want some hundreds of RC and UC each", plain)
	}
}

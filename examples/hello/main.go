// Hello sends a message from one queue pair to another: the smallest complete RDMA program. It needs no root, no kernel
// module and no adapter.
package main

import (
	"context"
	"fmt"
	"log"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

func main() {
	vctx := must(verbs.Open("")) // the first device
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(16, nil))
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)) // receives into the first half, sends from the second
	sizes := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b := must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	check(a.Connect(must(b.LocalInfo()), nil)) // two programs would exchange the infos as text
	check(b.Connect(must(a.LocalInfo()), nil))

	n := copy(mr.Bytes()[32:], "hello, RDMA")
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 32)}}))
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{mr.SGE(32, n)}}))
	for done := 0; done < 2; {
		var wcs [2]verbs.WC
		for _, wc := range wcs[:must(cq.Wait(context.Background(), wcs[:]))] {
			fmt.Printf("%v: %v, %q\n", wc.Opcode, wc.Status, mr.Bytes()[:wc.ByteLen])
			done++
		}
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
